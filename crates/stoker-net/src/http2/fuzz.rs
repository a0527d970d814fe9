//! Whole connections to hostile servers.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode};
use stoker_fuzz::Target;
use tokio::io::{AsyncWriteExt, duplex};
use tokio::runtime::Builder;

use super::frame::{
    ACK, END_HEADERS, END_STREAM, Kind, PADDED, PAYLOAD_BYTES_DEFAULT, STREAM, WITH_PRIORITY, put_frame, setting,
};
use super::hpack::{Indexing, put_field};
use super::{Connection, Patience, Request};
use crate::{Error, Result};

/// What a client gets from a server.
#[derive(Debug, PartialEq)]
struct Answer {
    status: Option<StatusCode>,
    fields: HeaderMap,
    data: Vec<u8>,
    trailers: Option<HeaderMap>,
}

/// The bytes that a server sends.
#[derive(Default)]
struct Script(BytesMut);

impl Script {
    fn frame(mut self, kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Self {
        put_frame(&mut self.0, kind, flags, stream, payload);
        self
    }

    /// Appends a header block, in several frames where one would be too long.
    fn block(mut self, flags: u8, status: Option<StatusCode>, fields: &HeaderMap) -> Self {
        let mut block = BytesMut::new();
        if let Some(status) = status {
            put_field(&mut block, Indexing::Without, ":status", status.as_str().as_bytes());
        }
        for (name, value) in fields {
            put_field(&mut block, Indexing::Without, name.as_str(), value.as_bytes());
        }
        let first = block.split_to(block.len().min(PAYLOAD_BYTES_DEFAULT));
        let is_whole = if block.is_empty() { END_HEADERS } else { 0 };
        self = self.frame(Kind::Headers, flags | is_whole, STREAM, &first);
        while !block.is_empty() {
            let part = block.split_to(block.len().min(PAYLOAD_BYTES_DEFAULT));
            let is_last = if block.is_empty() { END_HEADERS } else { 0 };
            self = self.frame(Kind::Continuation, is_last, STREAM, &part);
        }
        self
    }

    fn begin(settings: &[u8]) -> Self {
        Self::default().frame(Kind::Settings, 0, 0, settings)
    }

    fn input(self, piece: u8) -> Vec<u8> {
        [&[piece][..], &self.0].concat()
    }
}

impl Answer {
    /// Returns the bytes that a server sends for this answer.
    fn script(&self) -> Script {
        let ends_with_headers = self.data.is_empty() && self.trailers.as_ref() == Some(&self.fields);
        let flags = if ends_with_headers { END_STREAM } else { 0 };
        let mut script = Script::begin(b"").block(flags, self.status, &self.fields);
        if ends_with_headers {
            return script;
        }
        for part in self.data.chunks(PAYLOAD_BYTES_DEFAULT) {
            script = script.frame(Kind::Data, 0, STREAM, part);
        }
        match &self.trailers {
            Some(trailers) => script.block(END_STREAM, None, trailers),
            None => script.frame(Kind::Data, END_STREAM, STREAM, b""),
        }
    }
}

/// Reads the answer of a server that sends a script through a buffer of `piece` bytes and then closes the connection. The
/// client reads into `memory`; large data goes there directly.
async fn read(script: &[u8], piece: usize, memory: &mut [u8]) -> Result<Answer> {
    let (io, mut server) = duplex(piece);
    let request = Request {
        tls: false,
        authority: "server:1",
        path: "/DoGet",
        headers: &[("te", "trailers")],
        authorization: Some(b"Bearer t"),
        body: Bytes::from_static(&[7; 100]),
    };
    let client = async {
        let mut connection = Connection::open(Box::new(io), &request, Patience::default()).await?;
        let mut data = Vec::new();
        loop {
            match connection.read(memory).await? {
                0 => break,
                count => data.extend_from_slice(&memory[..count]),
            }
        }
        let trailers = connection.end()?;
        let (status, fields) = (connection.response().status, connection.response().fields.clone());
        Ok(Answer { status, fields, data, trailers })
    };
    let send = async move {
        // Sending fails when the client has closed the connection.
        drop(server.write_all(script).await);
        server
    };
    // The client may write into the buffer until it has read everything, so the server's end lives as long.
    tokio::pin!(client);
    tokio::select! {
        biased;
        answer = &mut client => answer,
        mut server = send => {
            drop(server.shutdown().await);
            client.await
        }
    }
}

/// Settings with these identifiers and values.
fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    entries.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect()
}

fn scripts() -> [Vec<u8>; 6] {
    let mut fields = HeaderMap::new();
    fields.insert("content-type", "application/grpc".parse().expect("a value"));
    let trailers: HeaderMap =
        [("grpc-status".parse().expect("a name"), "0".parse().expect("a value"))].into_iter().collect();
    let ok = Some(StatusCode::OK);
    let limits = settings(&[
        (setting::INITIAL_WINDOW_SIZE, 50),
        (setting::MAX_FRAME_SIZE, 1 << 20),
        (setting::HEADER_TABLE_SIZE, 0),
    ]);
    let answer = || Script::begin(&limits).block(0, ok, &fields);
    let priority = [&[0, 0, 0, 0, 7][..], &[0x88]].concat();
    [
        answer().frame(Kind::Data, 0, STREAM, &[1; 300]).block(END_STREAM, None, &trailers).input(0),
        Script::begin(b"").block(END_STREAM, ok, &trailers).input(1),
        answer()
            .frame(Kind::Settings, ACK, 0, b"")
            .frame(Kind::Ping, 0, 0, &[1; 8])
            .frame(Kind::WindowUpdate, 0, 0, &[0, 0, 1, 0])
            .frame(Kind::WindowUpdate, 0, STREAM, &[0, 0, 1, 0])
            .frame(Kind::Priority, 0, STREAM, &[0; 5])
            .frame(Kind::Data, PADDED, STREAM, &[&[4][..], &[2; 50]].concat())
            .frame(Kind::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0, b'b', b'y', b'e'])
            .frame(Kind::Unknown, 0, 3, &[9; 20])
            .frame(Kind::Data, END_STREAM, STREAM, &[3; 10])
            .input(2),
        Script::begin(b"")
            .block(0, Some(StatusCode::CONTINUE), &HeaderMap::new())
            .frame(Kind::Headers, WITH_PRIORITY, STREAM, &priority)
            .frame(Kind::Continuation, 0, STREAM, b"\x00\x01a")
            .frame(Kind::Continuation, END_HEADERS, STREAM, b"\x01b")
            .frame(Kind::Data, END_STREAM, STREAM, b"")
            .input(3),
        Script::begin(b"")
            .frame(Kind::Headers, END_HEADERS | PADDED, STREAM, &[2, 0x88, 0, 0])
            .frame(Kind::Data, END_STREAM, STREAM, &[5; 20_000])
            .input(4),
        answer().frame(Kind::Data, 0, STREAM, b"x").block(END_STREAM, None, &HeaderMap::new()).input(5),
    ]
}

#[test]
fn any_server_gives_an_error_or_one_answer_however_its_bytes_arrive() {
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    let (mut large, mut small) = (vec![0; 40_000], vec![0; 3_000]);
    let heads =
        (0..=10u8).flat_map(|kind| [0, 1, 4, 8].map(|flags| [0, 0, 8, kind, flags, 0, 0, 0, u8::from(kind < 2)]));
    Target::new("http2").seeds(scripts()).tokens(heads).memory_bytes_max(2 << 20).run(|input| {
        let Some((piece, script)) = input.split_first() else { return false };
        let found = runtime.block_on(read(script, 1 << 20, &mut large));
        let piece = (1 + usize::from(*piece)).max(script.len() / 64);
        let in_pieces = runtime.block_on(read(script, piece, &mut small));
        assert_eq!(in_pieces, found);
        match found {
            Ok(answer) => {
                let again = runtime.block_on(read(&answer.script().0, 1 << 14, &mut small));
                assert_eq!(again.as_ref(), Ok(&answer));
                true
            }
            Err(error) => {
                assert!(matches!(error, Error::Interrupted { .. }), "{error:?}");
                false
            }
        }
    });
}
