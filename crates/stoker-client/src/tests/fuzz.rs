//! Answers to `DoGet` from servers that do not keep to the protocol.

use arrow_flight::FlightData;
use bytes::Bytes;
use prost::Message;
use stoker_fuzz::Target;
use stoker_net::http2::Patience;
use stoker_types::ErrorKind;
use stoker_wire::Result;
use stoker_wire::decode::BufferSlot;
use tokio::runtime::Runtime;

use crate::grpc::grpc_frame;
use crate::tests::http2::script::*;

/// The bytes of an input before those of the answer: sizes of frames and of reads, and the places of a buffer slot.
const SIZES: usize = 4;

/// The beginnings of gRPC frames and of the fields of `FlightData`.
const TOKENS: [&[u8]; 9] = [
    &[0, 0, 0, 0, 0],
    &[0, 0, 0, 0, 9],
    &[0x0a, 2],
    &[0x12, 3],
    &[0x1a, 3],
    &[0xc2, 0x3e, 4],
    &[0xc2, 0x3e, 0],
    &[0x7a, 1, 0],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
];

/// The fields of a message, framed for gRPC.
fn framed(fields: &[FlightData]) -> Bytes {
    let fields: Vec<Vec<u8>> = fields.iter().map(FlightData::encode_to_vec).collect();
    grpc_frame(&fields.concat())
}

fn seeds() -> Vec<Vec<u8>> {
    let header = || FlightData { data_header: Bytes::from_static(b"a header"), ..FlightData::default() };
    let metadata = || FlightData { app_metadata: Bytes::from_static(b"metadata"), ..FlightData::default() };
    let body = |bytes| FlightData { data_body: vec![7; bytes].into(), ..FlightData::default() };
    let answers = [
        vec![],
        vec![framed(&[])],
        vec![framed(&[header(), metadata(), body(300)]), framed(&[header(), body(40)])],
        vec![framed(&[body(60), header(), metadata()]), framed(&[metadata(), body(60), header()])],
        vec![framed(&[header(), body(10), body(20)]), framed(&[body(20), body(10), header(), header()])],
    ];
    let input = |(index, answer): (usize, Vec<Bytes>)| {
        let sizes = [[9, 20, 2, 8], [255, 0, 0, 255], [40, 255, 50, 9]][index % 3];
        [&sizes[..], &answer.concat()].concat()
    };
    answers.into_iter().enumerate().map(input).collect()
}

/// Reads the messages of an answer, which comes in frames of `frame` bytes. If `place` is given, a part of each body is
/// read into a buffer slot.
fn messages(
    runtime: &Runtime,
    answer: &[u8],
    frame: usize,
    pieces: &[usize],
    place: Option<(u8, u8)>,
) -> Result<Vec<Whole>> {
    let script = answer.chunks(frame).fold(Script::answer(), Script::data).ok();
    runtime.block_on(async {
        let socket = Socket::new(script, pieces, End::Close);
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await?;
        let Some((begin, length)) = place else { return drain(&mut reader).await };
        let mut messages = Vec::new();
        while let Some(head) = reader.next().await? {
            let begin = usize::from(begin).min(head.body_bytes);
            let mut memory = vec![0; usize::from(length).min(head.body_bytes - begin)];
            let end = begin + memory.len();
            let slots = vec![BufferSlot { begin, memory: &mut memory }];
            let body = reader.body(slots).await?;
            assert!(body.is_placed(&(begin..end)));
            let (before, after) = (body.slice(0..begin), body.slice(end..head.body_bytes));
            let body = [&before.expect("the begin"), &memory[..], &after.expect("the end")].concat();
            messages.push(Whole { header: head.header, metadata: head.metadata, body: body.into() });
        }
        Ok(messages)
    })
}

/// Reads the messages of an answer with the decoders of Protobuf; `None` for an answer that they do not read.
fn decoded(mut answer: &[u8]) -> Option<Vec<Whole>> {
    let mut messages = Vec::new();
    while let [_, l0, l1, l2, l3, rest @ ..] = answer {
        let (message, rest) = rest.split_at_checked(u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize)?;
        let data = FlightData::decode(message).ok()?;
        messages.push(Whole { header: data.data_header, metadata: data.app_metadata, body: data.data_body });
        answer = rest;
    }
    Some(messages)
}

#[test]
fn answers_are_refused_or_read_as_protobuf_however_they_arrive() {
    let runtime = runtime();
    let target = Target::new("answers").seeds(seeds()).tokens(TOKENS);
    // Up to 16 MiB are taken for a field before its bytes arrive.
    target.memory_bytes_max(17 << 20).run(|input| {
        let Some((&[frame, piece, begin, length], answer)) = input.split_first_chunk::<SIZES>() else { return false };
        let frame = (1 + usize::from(frame)).max(answer.len() / 64);
        let pieces = [1 + usize::from(piece), 1 + answer.len() / 9, 100_000];
        let found = messages(&runtime, answer, 1 << 14, &[1 << 20], None);
        let text = |result: &Result<Vec<Whole>>| format!("{result:?}");
        assert_eq!(text(&messages(&runtime, answer, frame, &pieces, None)), text(&found));
        assert_eq!(text(&messages(&runtime, answer, frame, &pieces, Some((begin, length)))), text(&found));
        match found {
            Ok(found) => {
                if let Some(decoded) = decoded(answer) {
                    assert_eq!(found, decoded);
                }
                true
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable), "{error}");
                assert!(!error.to_string().contains("closed it"), "the script ends as an answer does: {error}");
                false
            }
        }
    });
}
