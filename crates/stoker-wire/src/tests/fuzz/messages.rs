//! Messages of a server.

use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder, StringRunBuilder};
use arrow_array::types::{Float32Type, Int16Type, Int32Type};
use arrow_array::{
    ArrayRef, BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray, FixedSizeListArray, Int32Array,
    LargeBinaryArray, LargeListArray, NullArray, RecordBatch, StringArray, StringViewArray, StructArray, UnionArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, UnionFields};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use stoker_batch::{BufferPool, Part};
use stoker_fuzz::Target;
use stoker_types::{Compression, Cursor, Digest, ErrorKind, Stalls};

use super::check_arrays;
use crate::decode::{BufferSlot, MessageBody, MessageHead, RowAssembler, is_compressed, malformed, whole_record_batch};
use crate::encode::{MessageOptions, part_messages, record_batch_messages};
use crate::protocol::MESSAGE_BYTES_MAX;
use crate::{Error, Result};

/// The rows of each batch.
const ROWS: usize = 9;

fn texts() -> StringArray {
    (0..ROWS).map(|row| (!row.is_multiple_of(3)).then(|| "ab c".repeat(row))).collect()
}

fn numbers() -> Int32Array {
    (0..ROWS as i32).map(|row| (row % 4 > 0).then_some(row)).collect()
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), array.null_count() > 0);
    let fields: Vec<Field> = columns.iter().map(field).collect();
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch")
}

/// Batches with columns of all kinds of layouts.
fn batches() -> Vec<RecordBatch> {
    let hashes = FixedSizeBinaryArray::try_from_iter((0..ROWS).map(|row| [row as u8; 5])).expect("hashes");
    let points =
        |row: usize| (!row.is_multiple_of(4)).then(|| (0..3).map(move |at| (at != row % 5).then_some(row as f32)));
    let points = FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>((0..ROWS).map(points), 3);
    let fixed = batch(vec![
        ("number", Arc::new(numbers())),
        ("price", Arc::new(Decimal128Array::from_iter_values(0..ROWS as i128))),
        ("hash", Arc::new(hashes)),
        ("point", Arc::new(points)),
    ]);
    let variable = batch(vec![
        ("text", Arc::new(texts())),
        ("image", Arc::new(LargeBinaryArray::from_iter_values((0..ROWS).map(|row| vec![row as u8; 30])))),
        ("flag", Arc::new(BooleanArray::from_iter((0..ROWS).map(|row| (row % 5 > 0).then_some(row % 2 > 0))))),
        ("nothing", Arc::new(NullArray::new(ROWS))),
    ]);
    let mut lists = ListBuilder::new(StringBuilder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    for row in 0..ROWS {
        (0..row % 4).for_each(|item| lists.values().append_value("x".repeat(item)));
        lists.append(row % 3 > 0);
        maps.keys().append_value("k");
        maps.values().append_option((row % 2 > 0).then_some(7));
        maps.append(true).expect("a map");
    }
    let pairs = StructArray::from(vec![
        (Arc::new(Field::new("a", DataType::Int32, true)), Arc::new(numbers()) as ArrayRef),
        (Arc::new(Field::new("b", DataType::Utf8, true)), Arc::new(texts())),
    ]);
    let large = |row: usize| (!row.is_multiple_of(3)).then(|| (0..row % 3).map(|item| Some(item as i32)));
    let nothings = Arc::new(NullArray::new(2 * ROWS));
    let item = Arc::new(Field::new("item", DataType::Null, true));
    let nested = batch(vec![
        ("list", Arc::new(lists.finish())),
        ("map", Arc::new(maps.finish())),
        ("pair", Arc::new(pairs)),
        ("large", Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>((0..ROWS).map(large)))),
        ("nothings", Arc::new(FixedSizeListArray::new(item, 2, nothings, None))),
    ]);
    let views = batch(vec![
        ("view", Arc::new(StringViewArray::from_iter((0..ROWS).map(|row| (row % 3 > 0).then(|| "abcd".repeat(row)))))),
        ("bytes", Arc::new(BinaryViewArray::from_iter_values((0..ROWS).map(|row| vec![row as u8; 3 * row])))),
    ]);
    let mut runs = StringRunBuilder::<Int16Type>::new();
    (0..ROWS).for_each(|row| runs.append_value(["a", "b"][row / 4 % 2]));
    let fields = [(0, Field::new("n", DataType::Int32, true)), (1, Field::new("t", DataType::Utf8, true))];
    let fields: UnionFields = fields.into_iter().map(|(id, field)| (id, Arc::new(field))).collect();
    let ids: Vec<i8> = (0..ROWS).map(|row| row as i8 % 2).collect();
    let children: Vec<ArrayRef> = vec![Arc::new(numbers()), Arc::new(texts())];
    let dense = (0..ROWS as i32).collect();
    let rare = batch(vec![
        ("runs", Arc::new(runs.finish())),
        (
            "dense",
            Arc::new(
                UnionArray::try_new(fields.clone(), ids.clone().into(), Some(dense), children.clone())
                    .expect("a union"),
            ),
        ),
        ("sparse", Arc::new(UnionArray::try_new(fields, ids.into(), None, children).expect("a union"))),
    ]);
    vec![fixed, variable, nested, views, rare]
}

/// Schemas of the batches, and one with a dictionary, whose messages have only indexes.
fn schemas() -> Vec<SchemaRef> {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
    let dictionary = Arc::new(Schema::new(vec![Field::new("word", dictionary, true)]));
    batches().iter().map(RecordBatch::schema).chain([dictionary]).collect()
}

/// Joins the messages of a batch to an input: the index of a schema, the number of rows, and for each message the lengths
/// of the header and of the body in two bytes each, the header, and the body.
fn input(schema: usize, rows: usize, messages: Vec<crate::encode::Message>) -> Vec<u8> {
    let mut input = vec![schema as u8, rows as u8];
    for message in messages {
        let body = message.body.concat();
        for length in [message.header.len(), body.len()] {
            input.extend_from_slice(&u16::try_from(length).expect("a small message").to_le_bytes());
        }
        input.extend_from_slice(&message.header);
        input.extend_from_slice(&body);
    }
    input
}

/// Splits the messages of an input. Lengths beyond its end are cut.
fn messages(mut input: &[u8]) -> Vec<(MessageHead, Bytes)> {
    let mut found = Vec::new();
    while let [h0, h1, b0, b1, rest @ ..] = input {
        let (header, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([*h0, *h1]).into()));
        let (body, rest) = rest.split_at(rest.len().min(u16::from_le_bytes([*b0, *b1]).into()));
        let header = Bytes::copy_from_slice(header);
        let head = MessageHead { header, metadata: Bytes::new(), body_bytes: body.len() };
        found.push((head, Bytes::copy_from_slice(body)));
        input = rest;
    }
    found
}

fn seeds(compression: Option<Compression>) -> Vec<Vec<u8>> {
    let options = |message_bytes| MessageOptions { message_bytes, message_bytes_max: MESSAGE_BYTES_MAX, compression };
    let mut seeds = Vec::new();
    for (index, data) in batches().into_iter().enumerate() {
        let whole = record_batch_messages(&data, &options(usize::MAX >> 1)).expect("messages");
        seeds.push(input(index, ROWS, whole));
        let cursor = Cursor { stream_id: Digest::of(b"stream"), epoch: 1, position: 9 };
        let part = Part {
            step: 3,
            cursor,
            num_rows: ROWS,
            num_valid: ROWS,
            first_row: 0,
            data: data.slice(1, ROWS - 1),
            row_addrs: vec![(1..ROWS as u64).collect()],
            substituted: Vec::new(),
        };
        let several = part_messages(&part, &Stalls::default(), &options(200)).expect("messages");
        assert!(several.len() > 1);
        seeds.push(input(index, ROWS - 1, several));
    }
    let indexes: Int32Array = (0..ROWS).map(|_| None).collect();
    let indexes = batch(vec![("word", Arc::new(indexes))]);
    seeds.push(input(schemas().len() - 1, ROWS, record_batch_messages(&indexes, &options(1 << 20)).expect("messages")));
    seeds
}

/// Adds a message as the client's reader does, which reads parts of the body to buffer slots.
fn add(rows: &mut RowAssembler, head: &MessageHead, body: &Bytes) -> Result<usize> {
    let (mut rest, mut placed, mut at) = (Vec::new(), Vec::new(), 0);
    for BufferSlot { begin, memory } in rows.places(head)? {
        let end = begin.checked_add(memory.len()).filter(|end| begin >= at && *end <= body.len());
        let end = end.ok_or_else(|| malformed("its columns overlap or lie beyond its body"))?;
        rest.extend_from_slice(&body[at..begin]);
        memory.copy_from_slice(&body[begin..end]);
        placed.push(begin..end);
        at = end;
    }
    rest.extend_from_slice(&body[at..]);
    rows.add(head, MessageBody::new(rest.into(), placed))
}

fn assembled(schema: &SchemaRef, rows: usize, messages: &[(MessageHead, Bytes)]) -> Result<RecordBatch> {
    let mut assembler = RowAssembler::try_new(schema.clone(), rows, &BufferPool::new(0))?;
    for (head, body) in messages {
        let before = assembler.rows();
        let added = add(&mut assembler, head, body)?;
        assert_eq!(assembler.rows(), before + added);
    }
    assembler.finish()
}

/// Reads the messages of an input as parts of a stream's batch, and as parts of a query's result. Returns whether they
/// make a batch.
fn read(schemas: &[SchemaRef], input: &[u8]) -> bool {
    let [schema, rows, rest @ ..] = input else { return false };
    let Some(schema) = schemas.get(usize::from(*schema)) else { return false };
    let (rows, messages) = (usize::from(*rows), messages(rest));
    let check = |result: Result<RecordBatch>| match result {
        Ok(batch) => {
            check_arrays(&batch);
            Some(batch)
        }
        Err(error) => {
            assert_eq!(Error::kind(&error), ErrorKind::Internal, "{error}");
            None
        }
    };
    let whole = |(head, body): &(MessageHead, Bytes)| {
        check(whole_record_batch(head, MessageBody::new(body.clone(), Vec::new()), schema))
    };
    let parts: Option<Vec<RecordBatch>> = messages.iter().map(whole).collect();
    let Some(batch) = check(assembled(schema, rows, &messages)) else { return false };
    assert_eq!(batch.num_rows(), rows);
    if let Some(parts) = parts {
        assert_eq!(concat_batches(schema, &parts).expect("one batch"), batch);
    }
    true
}

/// Returns whether a message of the input is compressed.
fn has_compressed(input: &[u8]) -> bool {
    messages(input.get(2..).unwrap_or_default()).iter().any(|(head, _)| is_compressed(head).unwrap_or(false))
}

#[test]
fn messages_are_refused_or_valid_rows() {
    let schemas = schemas();
    let target = Target::new("messages").seeds(seeds(None));
    target.memory_bytes_max(4 << 20).run(|input| !has_compressed(input) && read(&schemas, input));
}

#[test]
fn compressed_messages_are_refused_or_valid_rows() {
    let schemas = schemas();
    let seeds = [Compression::Lz4, Compression::Zstd].into_iter().flat_map(|codec| seeds(Some(codec)));
    // Memory for the buffers of a whole message is taken before the buffers are decompressed.
    let target = Target::new("compressed messages").seeds(seeds).memory_bytes_max(MESSAGE_BYTES_MAX + (64 << 20));
    target.run(|input| read(&schemas, input));
}
