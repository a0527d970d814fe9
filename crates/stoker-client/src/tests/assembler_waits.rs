//! How the assembler of batches divides the time until a batch among its causes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use bytes::Bytes;
use futures::poll;
use stoker_batch::{BufferPool, Part};
use stoker_clock::{Clock, ManualClock};
use stoker_net::http2::Patience;
use stoker_session::WaitClock;
use stoker_types::{BatchSize, Batching, Cursor, Digest, LastBatch, Slice, Stalls, Topology};
use stoker_wire::encode::{Message, MessageOptions, part_messages, schema_message};
use stoker_wire::protocol::MESSAGE_BYTES_MAX;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};

use crate::batch_assembler::BatchAssembler;
use crate::grpc::grpc_frame;
use crate::row_patience::RowPatience;
use crate::tests::http2::script::*;
use crate::tests::messages::frame_of;

const NUM_ROWS: u64 = 4;

fn slice() -> Slice {
    Slice::new(Topology::SINGLE, Batching { size: BatchSize::Global(NUM_ROWS), last: LastBatch::Drop }, 0)
}

fn rows() -> RecordBatch {
    let ids = Int64Array::from_iter_values(0..NUM_ROWS as i64);
    RecordBatch::try_from_iter([("id", Arc::new(ids) as _)]).expect("rows")
}

/// The message of the only batch, whose making took `spans` on the server.
fn batch(spans: &Stalls) -> Bytes {
    let stream_id = Digest::of(b"stream");
    let part = Part {
        step: 0,
        cursor: Cursor { stream_id, epoch: 0, position: NUM_ROWS },
        num_rows: NUM_ROWS as usize,
        num_valid: NUM_ROWS as usize,
        first_row: 0,
        data: rows(),
        row_addrs: vec![(0..NUM_ROWS).collect()],
        substituted: Vec::new(),
    };
    let options = MessageOptions { message_bytes: 1 << 20, message_bytes_max: MESSAGE_BYTES_MAX, compression: None };
    let [message] = <[Message; 1]>::try_from(part_messages(&part, spans, &options).expect("a message")).expect("one");
    frame_of(message)
}

async fn send(peer: &mut DuplexStream, script: Script) {
    peer.write_all(&script.0).await.expect("a client");
}

/// Receives the batch, whose making took `spans`: its first half comes after two seconds, the rest three seconds later.
async fn receive(spans: &Stalls) -> Stalls {
    let (time, second) = (ManualClock::new(), Duration::from_secs(1));
    let (io, mut peer) = duplex(1 << 16);
    send(&mut peer, Script::answer().data(&frame_of(schema_message(&rows().schema())))).await;
    let reader = open(Box::new(io), grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
    let patience = RowPatience::new(WaitClock::new(Clock::from(&time)), Duration::from_secs(60));
    let (id, pool) = (Digest::of(b"stream"), BufferPool::new(0));
    let mut assembler = BatchAssembler::new(reader, rows().schema(), id, slice(), NUM_ROWS, pool, patience);
    let mut next = pin!(assembler.next());
    let bytes = batch(spans);
    let (first, rest) = bytes.split_at(bytes.len() - 10);
    for (wait, part) in [(2, first), (3, rest)] {
        assert!(poll!(next.as_mut()).is_pending());
        time.advance(wait * second);
        send(&mut peer, Script::default().data(part)).await;
    }
    let (batch, spans) = next.await.expect("no error").expect("a batch");
    assert_eq!(batch.data, rows());
    spans
}

#[tokio::test]
async fn what_the_server_does_not_explain_is_the_network() {
    let secs = Duration::from_secs;
    let found = receive(&Stalls::default()).await;
    assert_eq!(found, Stalls { network: secs(5), ..Stalls::default() });
    let spans = Stalls { storage: secs(3), decode: secs(1), ..Stalls::default() };
    assert_eq!(receive(&spans).await, Stalls { network: secs(1), ..spans });
    // The server made the batch before the client asked for it.
    let spans = Stalls { storage: secs(7), ..Stalls::default() };
    assert_eq!(receive(&spans).await, spans);
}
