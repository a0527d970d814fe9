//! Answers to `DoGet` from servers that do not keep to the protocol.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, FixedSizeBinaryArray, Int64Array, RecordBatch, StringArray};
use arrow_flight::FlightData;
use bytes::Bytes;
use prost::Message;
use stoker_batch::{Batch, BufferPool, Part, Substitution};
use stoker_fuzz::Target;
use stoker_net::http2::Patience;
use stoker_session::WaitClock;
use stoker_types::{BatchSize, Batching, Cursor, Digest, ErrorKind, LastBatch, Slice, Stalls, Topology};
use stoker_wire::Result;
use stoker_wire::decode::{BufferSlot, MessageHead, is_compressed};
use stoker_wire::encode::{MessageOptions, part_messages, schema_message};
use stoker_wire::protocol::MESSAGE_BYTES_MAX;
use tokio::runtime::Runtime;

use crate::batch_assembler::BatchAssembler;
use crate::grpc::grpc_frame;
use crate::row_patience::RowPatience;
use crate::tests::http2::script::*;
use crate::tests::messages::frame_of;

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

fn has_codec(message: &Whole) -> bool {
    is_compressed(&MessageHead { header: message.header.clone(), ..MessageHead::default() }).unwrap_or(false)
}

/// The rows of the stream.
const STREAM_ROWS: u64 = 7;

/// Two ranks read batches of six rows. The last batch is padded.
fn slice() -> Slice {
    let batching = Batching { size: BatchSize::Global(6), last: LastBatch::Pad };
    Slice::new(Topology { rank: 1, world_size: 2 }, batching, 1)
}

fn rows(num_rows: usize) -> RecordBatch {
    let texts: StringArray = (0..num_rows).map(|row| (row > 0).then(|| "ab".repeat(row))).collect();
    let hashes = FixedSizeBinaryArray::try_from_iter((0..num_rows).map(|row| [row as u8; 3])).expect("hashes");
    let columns: [(&str, ArrayRef, bool); 3] = [
        ("id", Arc::new(Int64Array::from_iter_values(0..num_rows as i64)), false),
        ("text", Arc::new(texts), true),
        ("hash", Arc::new(hashes), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).expect("a batch")
}

/// The messages of the stream, of which one shows only that the server is alive. They are not compressed: compressed
/// messages are decoded on other threads.
fn stream(message_bytes: usize) -> Vec<u8> {
    let (slice, stream_id) = (slice(), Digest::of(b"stream"));
    let mut messages = vec![schema_message(&rows(1).schema()), stoker_wire::encode::Message::default()];
    for step in 0..slice.num_steps(STREAM_ROWS) {
        let share = slice.share(step, STREAM_ROWS);
        let num_rows = share.num_rows as usize;
        let part = Part {
            step,
            cursor: Cursor { stream_id, epoch: slice.epoch, position: slice.position_after(step, STREAM_ROWS) },
            num_rows,
            num_valid: share.num_valid as usize,
            first_row: 0,
            data: rows(num_rows),
            row_addrs: vec![(0..num_rows as u64).collect()],
            substituted: vec![Substitution { row: 0, row_addrs: vec![7], reason: "a checksum".into() }],
        };
        let options = MessageOptions { message_bytes, message_bytes_max: MESSAGE_BYTES_MAX, compression: None };
        messages.extend(part_messages(&part, &Stalls::default(), &options).expect("messages"));
    }
    messages.into_iter().flat_map(frame_of).collect()
}

/// Reads the batches of an answer.
async fn batches(answer: &[u8]) -> Result<Vec<Batch>> {
    let script = answer.chunks(1 << 14).fold(Script::answer(), Script::data).ok();
    let socket = Socket::new(script, &[1 << 20], End::Close);
    let reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await?;
    let (planned, pool) = (rows(1).schema(), BufferPool::new(0));
    let patience = RowPatience::new(WaitClock::default(), Duration::from_secs(60));
    let mut assembler =
        BatchAssembler::new(reader, planned, Digest::of(b"stream"), slice(), STREAM_ROWS, pool, patience);
    let mut batches = Vec::new();
    for _ in 0..slice().num_steps(STREAM_ROWS) {
        let Some((batch, _)) = assembler.next().await? else { break };
        batches.push(batch);
    }
    Ok(batches)
}

#[test]
fn streams_are_refused_or_valid_batches() {
    let runtime = runtime();
    let seeds = [usize::MAX >> 1, 40, 1].map(stream);
    // Up to 16 MiB are taken for a field before its bytes arrive.
    Target::new("streams").seeds(seeds).memory_bytes_max(17 << 20).run(|input| {
        // Compressed messages are decoded on other threads, whose panics are printed and whose memory is not counted.
        if decoded(input).is_some_and(|messages| messages.iter().any(has_codec)) {
            return false;
        }
        match runtime.block_on(batches(input)) {
            Ok(batches) => {
                for (step, batch) in (0..).zip(&batches) {
                    let share = slice().share(step, STREAM_ROWS);
                    let found = (batch.step, batch.num_valid as u64, batch.data.num_rows() as u64);
                    assert_eq!(found, (step, share.num_valid, share.num_rows));
                    assert!(batch.row_addrs.iter().all(|addrs| addrs.len() == batch.data.num_rows()));
                    assert!(batch.substituted.iter().all(|found| found.row < batch.data.num_rows()));
                    batch.data.columns().iter().for_each(|column| column.to_data().validate_full().expect("valid"));
                }
                !batches.is_empty()
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Internal | ErrorKind::Unavailable), "{error}");
                false
            }
        }
    });
}
