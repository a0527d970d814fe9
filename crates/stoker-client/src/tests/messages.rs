//! Rows are the same after encoding and decoding messages.

use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type};
use arrow_array::{
    ArrayRef, BooleanArray, Decimal128Array, FixedSizeBinaryArray, FixedSizeListArray, Int32Array, LargeBinaryArray,
    ListArray, NullArray, RecordBatch, StringArray, StringViewArray, StructArray, UInt8Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_flight::utils::flight_data_to_arrow_batch;
use arrow_ipc::{Buffer, FieldNode};
use arrow_schema::{DataType, Field, Schema};
use bytes::{Buf, Bytes};
use proptest::prelude::*;
use prost::Message as _;
use stoker_batch::{BufferPool, Part, Substitution};
use stoker_net::http2::Patience;
use stoker_types::{Compression, Cursor, Digest, ErrorKind, Stalls};
use stoker_wire::Result;
use stoker_wire::decode::{RowAssembler, planned_schema, schema_of_answer};
use stoker_wire::encode::{
    BatchLayout, Message, MessageOptions, part_messages, record_batch_header, record_batch_messages, schema_message,
};
use stoker_wire::proto::BatchMetadata;
use stoker_wire::protocol::MESSAGE_BYTES_MAX;

use crate::grpc::grpc_frame;
use crate::tests::http2::script::{End, Script, Socket, open, runtime};

/// Options for messages that are not compressed.
fn plain(message_bytes: usize) -> MessageOptions {
    MessageOptions { message_bytes, message_bytes_max: MESSAGE_BYTES_MAX, compression: None }
}

/// Bytes of a tensor: so many that its buffer is sent without a copy.
const TENSOR: i32 = 5_000;

fn noise(row: usize, salt: u64) -> u64 {
    (row as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left((salt % 64) as u32) >> 7
}

fn text(row: usize, salt: u64) -> String {
    "ab c".repeat((noise(row, salt) % 9) as usize)
}

fn is_null(row: usize, salt: u64) -> bool {
    noise(row, salt).is_multiple_of(3)
}

/// Returns a batch with columns of many types. A column of views, which are encoded in another way, comes only if
/// `views` is set.
pub fn batch(rows: usize, salt: u64, views: bool) -> RecordBatch {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for row in 0..rows {
        (0..noise(row, salt) % 4).for_each(|item| lists.values().append_value(text(row, salt + item)));
        lists.append(!is_null(row, salt + 1));
    }
    let points = (0..rows).map(|row| {
        (!is_null(row, salt)).then(|| (0..3).map(move |at| (!is_null(row + at, salt)).then_some(row as f32)))
    });
    let numbers: ArrayRef =
        Arc::new(Int32Array::from_iter((0..rows).map(|row| (!is_null(row, salt)).then_some(row as i32))));
    let texts: ArrayRef =
        Arc::new(StringArray::from_iter((0..rows).map(|row| (!is_null(row, salt + 2)).then(|| text(row, salt)))));
    let item = Arc::new(Field::new("item", DataType::UInt8, false));
    let bytes = UInt8Array::from_iter_values((0..rows * TENSOR as usize).map(|at| at as u8));
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("tensor", Arc::new(FixedSizeListArray::new(item, TENSOR, Arc::new(bytes), None))),
        ("number", numbers.clone()),
        ("flag", Arc::new(BooleanArray::from_iter((0..rows).map(|row| (!is_null(row, salt)).then_some(row % 2 == 0))))),
        ("text", texts.clone()),
        ("image", Arc::new(LargeBinaryArray::from_iter_values((0..rows).map(|row| text(row, salt + 3).into_bytes())))),
        ("point", Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(points, 3))),
        ("list", Arc::new(lists.finish())),
        (
            "pair",
            Arc::new(StructArray::from(vec![
                (Arc::new(Field::new("a", DataType::Int32, true)), numbers),
                (Arc::new(Field::new("b", DataType::Utf8, true)), texts),
            ])),
        ),
        (
            "hash",
            Arc::new(
                FixedSizeBinaryArray::try_from_iter((0..rows.max(1)).map(|row| [row as u8; 5]))
                    .expect("hashes")
                    .slice(0, rows),
            ),
        ),
        ("price", Arc::new(Decimal128Array::from_iter_values((0..rows).map(|row| row as i128 * 7)))),
        ("nothing", Arc::new(NullArray::new(rows))),
    ];
    if views {
        let long = |row| text(row, salt).repeat(3);
        columns.push(("view", Arc::new(StringViewArray::from_iter_values((0..rows).map(long)))));
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch")
}

/// Reads all bytes of a message.
pub fn frame_of(message: Message) -> Bytes {
    let mut frame = message.into_frame();
    frame.copy_to_bytes(frame.remaining())
}

/// Adds the rows of a message that arrives through a connection, in frames of `frame_bytes` bytes.
pub fn add(rows: &mut RowAssembler, message: Message, frame_bytes: usize) -> Result<usize> {
    let bytes = frame_of(message);
    let script = bytes.chunks(frame_bytes).fold(Script::answer(), Script::data).ok();
    runtime().block_on(async {
        let socket = Socket::new(script, &[frame_bytes + 100, 70], End::Wait);
        let mut reader = open(Box::new(socket), grpc_frame(b"ticket"), Patience::default()).await.expect("an answer");
        let head = reader.next().await.expect("a message").expect("a message");
        let body = reader.body(rows.places(&head)?).await?;
        let added = rows.add(&head, body)?;
        assert!(reader.next().await.expect("the end").is_none());
        Ok(added)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn slices_of_all_types_arrive_as_they_were(
        rows in 0usize..40,
        range in (0.0f64..1.0, 0.0f64..=1.0),
        salt in 0u64..1_000,
        message_bytes in 1usize..60_000,
        frame_bytes in 1usize..40_000,
        around in (0usize..50, 0usize..3),
        views: bool,
        compression in prop::sample::select(vec![None, Some(Compression::Lz4), Some(Compression::Zstd)]),
    ) {
        let start = (rows as f64 * range.0) as usize;
        let data = batch(rows, salt, views).slice(start, ((rows - start) as f64 * range.1) as usize);
        let rows = data.num_rows();
        let cursor = Cursor { stream_id: Digest::of(b"stream"), epoch: 1, position: 9 };
        let row_addrs = vec![(0..rows as u64).collect()];
        // The rows of the batch before and after these are in other parts.
        let (before, after) = around;
        let every_third = (before..before + rows).step_by(3);
        let substituted: Vec<_> =
            every_third.map(|row| Substitution { row, row_addrs: vec![7], reason: String::new() }).collect();
        let num_rows = before + rows + after;
        let sent = Part {
            step: 3,
            cursor,
            num_rows,
            num_valid: num_rows,
            first_row: before,
            data: data.clone(),
            row_addrs,
            substituted: substituted.clone(),
        };
        let options = MessageOptions { message_bytes, message_bytes_max: MESSAGE_BYTES_MAX, compression };
        let messages = part_messages(&sent, &Stalls::default(), &options).expect("messages");
        prop_assert!(!messages.is_empty());
        let mut named = Vec::new();
        let mut assembler = RowAssembler::try_new(data.schema(), rows, &BufferPool::new(0)).expect("memory");
        for message in messages {
            let stock = message.clone().into_flight_data();
            let stock = flight_data_to_arrow_batch(&stock, data.schema(), &Default::default()).expect("a batch");
            prop_assert_eq!(&stock, &data.slice(assembler.rows(), stock.num_rows()));
            let metadata = BatchMetadata::decode(message.metadata.clone()).expect("metadata");
            let (first, end) = (before + assembler.rows(), before + assembler.rows() + stock.num_rows());
            prop_assert_eq!((metadata.row_offset, metadata.num_rows), (first as u64, num_rows as u64));
            prop_assert_eq!((metadata.end_of_batch, metadata.stall.is_some()), (end == num_rows, end == num_rows));
            prop_assert!(metadata.substituted.iter().all(|found| (first..end).contains(&(found.row as usize))));
            named.extend(metadata.substituted.iter().map(|found| found.row as usize));
            // A message exceeds its limit only by padding and by the lengths of compressed buffers, unless it has a
            // single row.
            prop_assert!(stock.num_rows() <= 1 || message.body_bytes() <= message_bytes + 64 * 40);
            add(&mut assembler, message, frame_bytes).expect("rows");
        }
        prop_assert_eq!(named, substituted.iter().map(|found| found.row).collect::<Vec<_>>());
        prop_assert_eq!(assembler.finish().expect("a batch"), data);
    }
}

#[test]
fn large_buffers_are_not_copied() {
    let data = batch(64, 1, false);
    let tensors = data.column(0).to_data().child_data()[0].buffers()[0].clone();
    let range = tensors.as_ptr_range();
    let messages = record_batch_messages(&data, &plain(100_000)).expect("messages");
    let in_place =
        messages.iter().flat_map(|message| &message.body).filter(|segment| range.contains(&segment.as_ptr()));
    assert_eq!(in_place.map(Bytes::len).sum::<usize>(), tensors.len());
}

#[test]
fn sizes_are_those_of_the_rows_not_of_their_buffers() {
    let slice = batch(40, 1, true).slice(30, 4);
    assert_eq!(record_batch_messages(&slice, &plain(40_000)).expect("messages").len(), 1);
    assert_eq!(record_batch_messages(&slice, &plain(12_000)).expect("messages").len(), 2);
    assert_eq!(record_batch_messages(&slice, &plain(1)).expect("messages").len(), 4);
    assert_eq!(record_batch_messages(&slice.slice(0, 0), &plain(1)).expect("messages").len(), 1);
}

#[test]
fn damaged_messages_are_errors() {
    let data = batch(20, 1, false);
    let schema = data.schema();
    let message = || record_batch_messages(&data, &plain(usize::MAX >> 1)).expect("messages").remove(0);
    let assembler = |rows| RowAssembler::try_new(schema.clone(), rows, &BufferPool::new(0)).expect("memory");
    let mut short = message();
    short.body = vec![short.body.concat()[..10_000].to_vec().into()];
    assert!(add(&mut assembler(20), short, 999).is_err(), "too few bytes");
    assert!(add(&mut assembler(19), message(), 999).is_err(), "too many rows");
    let mut missing = assembler(21);
    add(&mut missing, message(), 999).expect("rows");
    assert!(missing.finish().is_err(), "too few rows");
    assert!(add(&mut assembler(20), schema_message(&schema), 999).is_err(), "no rows");
}

#[test]
fn batches_with_too_many_items_are_errors() {
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let num_items = i32::MAX as usize;
    let (offsets, items) = (OffsetBuffer::from_lengths([num_items]), Arc::new(NullArray::new(num_items)));
    let list = ListArray::new(item, offsets, items, None);
    let data = RecordBatch::try_from_iter([("list", Arc::new(list) as ArrayRef)]).expect("a batch");
    let mut rows = RowAssembler::try_new(data.schema(), 2, &BufferPool::new(0)).expect("memory");
    for _ in 0..2 {
        let message = record_batch_messages(&data, &plain(usize::MAX >> 1)).expect("messages").remove(0);
        add(&mut rows, message, 999).expect("a row");
    }
    assert_eq!(rows.finish().expect_err("too many items").kind(), ErrorKind::Internal);
}

/// Decodes a message with two columns of four numbers, whose values lie at the given offsets in a body of 64 bytes.
fn two_columns(places: [usize; 2]) -> Result<RecordBatch> {
    let nodes = [FieldNode::new(4, 0), FieldNode::new(4, 0)];
    let buffers = places.map(|at| [Buffer::new(0, 0), Buffer::new(at as i64, 4)]).concat();
    let layout = BatchLayout { rows: 4, nodes: &nodes, buffers: &buffers, body_bytes: 64, ..BatchLayout::default() };
    let header = record_batch_header(&layout);
    let body = vec![Bytes::from_iter(0..64)];
    let fields = ["a", "b"].map(|name| Field::new(name, DataType::UInt8, false)).to_vec();
    let mut rows = RowAssembler::try_new(Arc::new(Schema::new(fields)), 4, &BufferPool::new(0)).expect("memory");
    add(&mut rows, Message { header, metadata: Bytes::new(), body }, 999)?;
    rows.finish()
}

#[test]
fn columns_may_lie_anywhere_but_not_in_one_place() {
    let batch = two_columns([40, 8]).expect("rows");
    assert_eq!(batch.column(0).as_primitive::<UInt8Type>().values(), &[40, 41, 42, 43]);
    assert_eq!(batch.column(1).as_primitive::<UInt8Type>().values(), &[8, 9, 10, 11]);
    for places in [[8, 8], [8, 10], [10, 8], [61, 0], [usize::MAX, 0], [usize::MAX - 1, 0]] {
        assert_eq!(two_columns(places).expect_err("not a message").kind(), ErrorKind::Internal, "{places:?}");
    }
}

#[test]
fn a_message_has_as_many_nulls_as_it_declares() {
    let decoded = |null_count| {
        let buffers = [Buffer::new(0, 1), Buffer::new(8, 4)];
        let nodes = [FieldNode::new(4, null_count)];
        let layout =
            BatchLayout { rows: 4, nodes: &nodes, buffers: &buffers, body_bytes: 64, ..BatchLayout::default() };
        let header = record_batch_header(&layout);
        let body = vec![Bytes::from(vec![0b0101; 64])];
        let schema = Arc::new(Schema::new(vec![Field::new("a", DataType::UInt8, true)]));
        let mut rows = RowAssembler::try_new(schema, 4, &BufferPool::new(0)).expect("memory");
        add(&mut rows, Message { header, metadata: Bytes::new(), body }, 999)?;
        rows.finish()
    };
    for null_count in [0, 2] {
        assert_eq!(decoded(null_count).expect("rows").column(0).null_count(), null_count as usize);
    }
    for null_count in [-1, 1, 3, i64::MIN, i64::MAX] {
        assert_eq!(decoded(null_count).expect_err("other nulls").kind(), ErrorKind::Internal, "{null_count}");
    }
}

/// Returns a schema message with one column of a nested type, without the required child fields.
fn childless(data_type: arrow_ipc::Type) -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let list = arrow_ipc::ListBuilder::new(&mut builder).finish();
    let field = {
        let mut field = arrow_ipc::FieldBuilder::new(&mut builder);
        field.add_type_type(data_type);
        field.add_type_(list.as_union_value());
        field.finish()
    };
    let fields = builder.create_vector(&[field]);
    let schema = {
        let mut schema = arrow_ipc::SchemaBuilder::new(&mut builder);
        schema.add_fields(fields);
        schema.finish()
    };
    finished(builder, schema)
}

/// Returns a message with a schema as its header.
fn finished(
    mut builder: flatbuffers::FlatBufferBuilder<'_>,
    schema: flatbuffers::WIPOffset<arrow_ipc::Schema<'_>>,
) -> Vec<u8> {
    let message = {
        let mut message = arrow_ipc::MessageBuilder::new(&mut builder);
        message.add_version(arrow_ipc::MetadataVersion::V5);
        message.add_header_type(arrow_ipc::MessageHeader::Schema);
        message.add_header(schema.as_union_value());
        message.finish()
    };
    builder.finish(message, None);
    builder.finished_data().to_vec()
}

#[test]
fn schemas_that_lack_a_part_are_errors() {
    for data_type in [arrow_ipc::Type::List, arrow_ipc::Type::Map] {
        let message = childless(data_type);
        let planned = planned_schema(&message, &Schema::empty());
        assert_eq!(planned.map_err(|error| error.kind()), Err(ErrorKind::Internal), "{data_type:?}");
        // Answers of calls wrap the message: a marker, the length, the message.
        let answer = [&[0xff; 4][..], &(message.len() as u32).to_le_bytes(), &message].concat();
        let answered = schema_of_answer(&answer);
        assert_eq!(answered.map_err(|error| error.kind()), Err(ErrorKind::Internal), "{data_type:?}");
    }
}

/// Returns a schema message with one column, a structure of eight structures, and so on to a depth of six. All of the
/// structures of one depth are the same bytes, which are referenced eight times.
fn unfolding() -> Vec<u8> {
    let mut builder = flatbuffers::FlatBufferBuilder::new();
    let name = builder.create_string(&"name".repeat(1_000));
    let data_type = arrow_ipc::Struct_Builder::new(&mut builder).finish();
    let mut children = Vec::new();
    for _ in 0..6 {
        let fields = builder.create_vector(&children);
        let mut field = arrow_ipc::FieldBuilder::new(&mut builder);
        field.add_name(name);
        field.add_type_type(arrow_ipc::Type::Struct_);
        field.add_type_(data_type.as_union_value());
        field.add_children(fields);
        children = vec![field.finish(); 8];
    }
    let fields = builder.create_vector(&children[..1]);
    let schema = {
        let mut schema = arrow_ipc::SchemaBuilder::new(&mut builder);
        schema.add_fields(fields);
        schema.finish()
    };
    finished(builder, schema)
}

#[test]
fn schemas_that_unfold_to_much_more_are_errors() {
    let message = unfolding();
    assert!(message.len() < 5_000);
    let planned = planned_schema(&message, &Schema::empty()).expect_err("too much");
    assert!(planned.kind() == ErrorKind::Internal && planned.to_string().contains("size"), "{planned}");
}
