//! Compressed messages.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, FixedSizeListArray, RecordBatch, UInt8Array};
use arrow_flight::FlightData;
use arrow_ipc::writer::{CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_ipc::{Buffer, CompressionType, FieldNode, root_as_message};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use stoker_batch::BufferPool;
use stoker_types::{Compression, ErrorKind};
use stoker_wire::Result;
use stoker_wire::buffer_codec::{BufferEncoder, compression_type};
use stoker_wire::decode::{MessageBody, MessageHead, RowAssembler, whole_record_batch};
use stoker_wire::encode::{BatchLayout, Message, MessageOptions, record_batch_header, record_batch_messages};
use stoker_wire::protocol::MESSAGE_BYTES_MAX;

use crate::tests::messages::{add, batch};

const CODECS: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

/// More bytes than a message may have in all.
const HUGE: i64 = 1 << 60;

fn one_message(batch: &RecordBatch, compression: Option<Compression>) -> Message {
    let options = MessageOptions { message_bytes: usize::MAX >> 1, message_bytes_max: MESSAGE_BYTES_MAX, compression };
    record_batch_messages(batch, &options).expect("messages").remove(0)
}

/// Returns a batch of 1 KiB tensors with these bytes.
fn tensors(bytes: Vec<u8>) -> RecordBatch {
    let item = Arc::new(Field::new("item", DataType::UInt8, false));
    let tensors = FixedSizeListArray::new(item, 1_024, Arc::new(UInt8Array::from(bytes)), None);
    RecordBatch::try_from_iter([("x", Arc::new(tensors) as _)]).expect("a batch")
}

/// Returns bytes that no codec makes fewer.
fn noise(bytes: usize) -> Vec<u8> {
    let step = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        Some((*state >> 32) as u8)
    };
    std::iter::repeat_n((), bytes).scan(0x9E37_79B9_7F4A_7C15, |state, ()| step(state)).collect()
}

/// Decodes a message as the client does, both as a part of a stream's batch and as a part of a query's result. Both
/// must agree.
fn received(message: Message, schema: &SchemaRef, rows: usize) -> Result<RecordBatch> {
    let head = MessageHead { header: message.header.clone(), ..MessageHead::default() };
    let body = MessageBody::new(message.body.concat().into(), Vec::new());
    let whole = whole_record_batch(&head, body, schema);
    let mut assembler = RowAssembler::try_new(schema.clone(), rows, &BufferPool::new(0)).expect("memory");
    let assembled = add(&mut assembler, message, 9_999).and_then(|_| assembler.finish());
    if let (Ok(whole), Ok(assembled)) = (&whole, &assembled) {
        assert_eq!(whole, assembled);
    }
    whole.and(assembled)
}

#[test]
fn bodies_shrink_where_bytes_repeat() {
    let masks = tensors(vec![7; 64 << 10]);
    let plain = one_message(&masks, None).body_bytes();
    for compression in CODECS {
        let message = one_message(&masks, Some(compression));
        assert!(message.body_bytes() * 50 < plain, "{compression:?}: {} of {plain}", message.body_bytes());
        let parsed = root_as_message(&message.header).expect("a message");
        let found = parsed.header_as_record_batch().and_then(|batch| batch.compression()).expect("compressed");
        assert_eq!(found.codec(), compression_type(compression));
        assert_eq!(received(message, &masks.schema(), 64).expect("rows"), masks);
    }
}

#[test]
fn noise_is_stored_without_a_copy() {
    let images = tensors(noise(64 << 10));
    let values = images.column(0).to_data().child_data()[0].buffers()[0].clone();
    for compression in CODECS {
        let message = one_message(&images, Some(compression));
        let stored = message.body.iter().find(|segment| segment.as_ptr() == values.as_ptr()).expect("the bytes");
        assert_eq!(stored.len(), values.len());
        let begin = message.body[0].as_ref();
        assert_eq!(begin, (-1_i64).to_le_bytes(), "{compression:?}");
        assert_eq!(received(message, &images.schema(), 64).expect("rows"), images);
    }
}

#[test]
fn messages_of_other_writers_are_read() {
    for (views, compression) in [(false, Compression::Lz4), (false, Compression::Zstd), (true, Compression::Zstd)] {
        let sent = batch(23, 5, views);
        let options = IpcWriteOptions::default().try_with_compression(Some(compression_type(compression)));
        let (_, encoded) = IpcDataGenerator::default()
            .encode(
                &sent,
                &mut DictionaryTracker::new(false),
                &options.expect("options"),
                &mut CompressionContext::default(),
            )
            .expect("a message");
        let message = Message::from(FlightData::from(encoded));
        assert_eq!(received(message, &sent.schema(), 23).expect("rows"), sent);
    }
}

/// Returns a message with four rows of a column "a" of bytes, in one compressed buffer of which the message declares
/// `buffer_bytes` bytes.
fn four_rows(buffer: Vec<u8>, buffer_bytes: usize, compression: Compression) -> Message {
    let (nodes, body_bytes) = ([FieldNode::new(4, 0)], buffer.len());
    let buffers = [Buffer::new(0, 0), Buffer::new(0, buffer_bytes as i64)];
    let header = record_batch_header(&BatchLayout {
        rows: 4,
        nodes: &nodes,
        buffers: &buffers,
        body_bytes,
        compression: Some(compression),
        ..BatchLayout::default()
    });
    Message { header, metadata: Bytes::new(), body: vec![buffer.into()] }
}

fn four_rows_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("a", DataType::UInt8, false)]))
}

/// Checks that a message is refused, with an error that names the column and the reason.
fn check_refused(message: Message, schema: &SchemaRef, column: &str, reason: &str) {
    let error = received(message, schema, 4).expect_err(reason);
    assert_eq!(error.kind(), ErrorKind::Internal);
    let text = error.to_string();
    assert!(text.contains(column) && text.contains(reason), "{text:?} names neither {column:?} nor {reason:?}");
}

/// Returns a compressed frame of `bytes` bytes, after a prefix that declares `length` bytes.
fn framed(length: i64, bytes: usize, compression: Compression) -> Vec<u8> {
    // Callers pass enough bytes for the encoder to compress them; it would store fewer.
    let (_, frame) = BufferEncoder::try_new(compression).expect("a codec").encode(&vec![1; bytes]).expect("a frame");
    [&length.to_le_bytes()[..], &frame.expect("a frame")].concat()
}

#[test]
fn lengths_are_checked_before_memory_is_taken() {
    let schema = four_rows_schema();
    for compression in CODECS {
        let refused = |buffer: Vec<u8>, reason: &str| {
            let bytes = buffer.len();
            check_refused(four_rows(buffer, bytes, compression), &schema, "column \"a\"", reason);
        };
        refused(framed(HUGE, 200, compression), "declares 1152921504606846976 bytes; all buffers may have 1073741824");
        refused(framed(i64::MAX, 200, compression), "declares 9223372036854775807 bytes");
        refused(framed(-2, 200, compression), "declares -2 bytes");
        refused(vec![4, 0, 0], "has 3 bytes, too few for a length");
        let cut = four_rows(vec![0; 16], 17, compression);
        check_refused(cut, &schema, "column \"a\"", "lies beyond the body");
    }
}

#[test]
fn what_a_buffer_holds_is_what_it_declares_and_what_its_rows_take() {
    let schema = four_rows_schema();
    for compression in CODECS {
        let error = |buffer: Vec<u8>| {
            let bytes = buffer.len();
            let mut rows = RowAssembler::try_new(schema.clone(), 4, &BufferPool::new(0)).expect("memory");
            let error = add(&mut rows, four_rows(buffer, bytes, compression), 999).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Internal);
            error.to_string()
        };
        for (buffer, reason) in [
            (framed(3, 200, compression), "has missing bytes"),
            (framed(200, 200, compression), "declares 200 bytes, its rows have 4"),
            // Frames of 200 bytes and of 4 MiB, which declare 4 bytes.
            (framed(4, 200, compression), "4 bytes"),
            (framed(4, 4 << 20, compression), "4 bytes"),
            ([&4_i64.to_le_bytes()[..], &[9; 40]].concat(), "cannot be decompressed to 4 bytes"),
            (4_i64.to_le_bytes().to_vec(), "4"),
            ([&(-1_i64).to_le_bytes()[..], &[9; 3]].concat(), "has missing bytes"),
        ] {
            let text = error(buffer);
            assert!(
                text.contains("column \"a\"") && text.contains(reason),
                "{compression:?}: {text:?}, not {reason:?}"
            );
        }
        let mut rows = RowAssembler::try_new(schema.clone(), 4, &BufferPool::new(0)).expect("memory");
        let stored = four_rows([&(-1_i64).to_le_bytes()[..], &[9; 4]].concat(), 12, compression);
        assert_eq!(add(&mut rows, stored, 999).expect("rows"), 4);
        assert_eq!(rows.finish().expect("a batch").column(0).as_primitive::<UInt8Type>().values(), &[9; 4]);
    }
}

#[test]
fn all_buffers_together_are_bounded() {
    let data = batch(40, 3, false);
    for compression in CODECS {
        let mut message = one_message(&data, Some(compression));
        let parsed = root_as_message(&message.header).expect("a message");
        let buffers = parsed.header_as_record_batch().and_then(|batch| batch.buffers()).expect("buffers");
        let begins: Vec<usize> =
            buffers.iter().filter(|buffer| buffer.length() > 8).map(|buffer| buffer.offset() as usize).collect();
        let mut body = message.body.concat();
        // Each buffer alone is within the limit.
        for begin in begins {
            body[begin..begin + 8].copy_from_slice(&(600_i64 << 20).to_le_bytes());
        }
        message.body = vec![body.into()];
        let error = received(message, &data.schema(), 40).expect_err("too much");
        assert!(error.to_string().contains("all buffers may have 1073741824 together"), "{error}");
    }
}

#[test]
fn damaged_bodies_are_errors_or_other_bytes() {
    let data = batch(40, 3, false);
    let schema = data.schema();
    for compression in CODECS {
        let message = one_message(&data, Some(compression));
        let body = message.body.concat();
        let mut refused = 0;
        for at in (0..body.len()).step_by(7) {
            let mut body = body.clone();
            body[at] ^= 0x55;
            let damaged = Message { body: vec![body.into()], ..message.clone() };
            refused += usize::from(received(damaged, &schema, 40).is_err());
        }
        assert!(refused > 0, "{compression:?}");
        let cut = Message { body: vec![body[..body.len() / 2].to_vec().into()], ..message };
        assert!(received(cut, &schema, 40).is_err());
    }
}

#[test]
fn a_codec_that_nobody_knows_is_an_error() {
    let message = four_rows(framed(4, 200, Compression::Zstd), 8, Compression::Zstd);
    let codec = |header: &[u8]| {
        let parsed = root_as_message(header).ok()?;
        parsed.header_as_record_batch()?.compression().map(|compression| compression.codec())
    };
    let changed = |at: usize| {
        let mut header = message.header.to_vec();
        header[at] = 77;
        header
    };
    let header = (0..message.header.len()).map(changed).find(|header| codec(header) == Some(CompressionType(77)));
    let unknown = Message { header: header.expect("the place of the codec").into(), ..message };
    let error = received(unknown, &four_rows_schema(), 4).expect_err("unknown");
    assert!(error.to_string().contains("codec <UNKNOWN 77>"), "{error}");
}
