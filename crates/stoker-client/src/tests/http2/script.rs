//! A server that sends the bytes of a script.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arrow_flight::FlightData;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prost::Message;
use stoker_net::http2::hpack::{Indexing, put_field};
use stoker_net::http2::{Io, Patience, Request};
use stoker_wire::Result;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::grpc::{CALL_HEADERS, call, grpc_frame};
use crate::message_reader::MessageReader;

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RESET: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GO_AWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const ACK: u8 = 1;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
pub const PADDED: u8 = 8;

/// The bytes that a server sends.
#[derive(Clone, Default)]
pub struct Script(pub Vec<u8>);

impl Script {
    /// Begins with the settings and the headers of an answer.
    pub fn answer() -> Self {
        Self::default().frame(SETTINGS, 0, 0, b"").headers(&[(":status", "200"), ("content-type", "application/grpc")])
    }

    pub fn frame(mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Self {
        self.0.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
        self.0.extend_from_slice(&[kind, flags]);
        self.0.extend_from_slice(&stream.to_be_bytes());
        self.0.extend_from_slice(payload);
        self
    }

    pub fn headers(self, fields: &[(&str, &str)]) -> Self {
        self.frame(HEADERS, END_HEADERS, 1, &block(fields))
    }

    pub fn trailers(self, fields: &[(&str, &str)]) -> Self {
        self.frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))
    }

    pub fn data(self, payload: &[u8]) -> Self {
        self.frame(DATA, 0, 1, payload)
    }

    /// Ends an answer without an error.
    pub fn ok(self) -> Self {
        self.trailers(&[("grpc-status", "0")])
    }
}

pub fn block(fields: &[(&str, &str)]) -> BytesMut {
    let mut block = BytesMut::new();
    fields.iter().for_each(|(name, value)| put_field(&mut block, Indexing::Without, name, value.as_bytes()));
    block
}

/// Encodes a message, framed for gRPC.
pub fn message(header: &[u8], metadata: &[u8], body: &[u8]) -> Bytes {
    let data = FlightData {
        flight_descriptor: None,
        data_header: Bytes::copy_from_slice(header),
        app_metadata: Bytes::copy_from_slice(metadata),
        data_body: Bytes::copy_from_slice(body),
    };
    grpc_frame(&data.encode_to_vec())
}

/// What a socket does after the end of its script: it closes the connection, or sends nothing more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    Close,
    Wait,
}

/// A socket from which a client reads a script, in pieces whose sizes cycle through `pieces`. It records what the
/// client writes.
pub struct Socket {
    script: Vec<u8>,
    at: usize,
    pieces: Vec<usize>,
    num_reads: usize,
    end: End,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Socket {
    pub fn new(script: Script, pieces: &[usize], end: End) -> Self {
        Self { script: script.0, at: 0, pieces: pieces.to_vec(), num_reads: 0, end, written: Arc::default() }
    }

    pub fn written(&self) -> Arc<Mutex<Vec<u8>>> {
        self.written.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        self.num_reads += 1;
        if self.num_reads.is_multiple_of(3) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let piece = self.pieces[self.num_reads % self.pieces.len()].min(out.remaining());
        let piece = &self.script[self.at..self.script.len().min(self.at + piece)];
        if piece.is_empty() && self.end == End::Wait {
            return Poll::Pending;
        }
        out.put_slice(piece);
        let length = piece.len();
        self.at += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let taken = &bytes[..bytes.len().min(1_000)];
        self.written.lock().extend_from_slice(taken);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Creates a runtime with timers.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub async fn open(io: Box<dyn Io>, body: Bytes, patience: Patience) -> Result<MessageReader> {
    let request = Request {
        tls: false,
        authority: "server:1",
        path: "/DoGet",
        headers: &CALL_HEADERS,
        authorization: Some(b"Bearer t"),
        body,
    };
    Ok(MessageReader::new(call(io, &request, patience).await?))
}

/// A message whose body is in one piece.
#[derive(Debug, PartialEq)]
pub struct Whole {
    pub header: Bytes,
    pub metadata: Bytes,
    pub body: Bytes,
}

/// Reads all messages of an answer.
pub async fn drain(reader: &mut MessageReader) -> Result<Vec<Whole>> {
    let mut messages = Vec::new();
    while let Some(head) = reader.next().await? {
        let body = reader.body(Vec::new()).await?.into_rest();
        assert_eq!(body.len(), head.body_bytes);
        messages.push(Whole { header: head.header, metadata: head.metadata, body });
    }
    Ok(messages)
}

/// Reads all messages of a script, in pieces whose sizes cycle through `pieces`.
pub fn read(script: Script, pieces: &[usize]) -> Result<Vec<Whole>> {
    runtime().block_on(async {
        let socket = Socket::new(script, pieces, End::Close);
        drain(&mut open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await?).await
    })
}

/// Parses the frames that a client wrote after its preface: kind, flags, stream, payload.
pub fn frames(written: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut rest = written.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the preface");
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, d, e, f, g, after @ ..] = rest {
        let (payload, after) = after.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
        frames.push((*kind, *flags, u32::from_be_bytes([*d, *e, *f, *g]), payload.to_vec()));
        rest = after;
    }
    assert!(rest.is_empty(), "whole frames");
    frames
}
