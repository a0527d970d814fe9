//! Tests of columns of values.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int32Type};
use arrow_schema::{DataType, Field, Schema};
use stoker_columns::{is_encoded_image, kind_of, video_index_of};

use super::*;
use crate::{FormatOptions, RowBatch};

const JPEG: &[u8] = b"\xff\xd8\xff\xe0";

fn rows(fields: Vec<Field>, rows: &[Vec<FieldValue<'_>>]) -> RowBatch {
    let mut batch = BatchRows::new("f", &Arc::new(Schema::new(fields)), None).unwrap();
    for (row, values) in rows.iter().enumerate() {
        batch.push(row as u64, values);
    }
    batch.take(0).unwrap()
}

#[test]
fn values_become_arrays() {
    let fields = vec![
        Field::new("t", DataType::Utf8, true),
        Field::new("n", DataType::Float32, true),
        tensor("x", DataType::Int32, vec![1, 2]),
        ragged("l", DataType::Int32, 1),
        ragged("v", DataType::Float32, 2),
    ];
    let number = |number: f32| FieldValue::Bytes(Cow::Owned(number.to_le_bytes().to_vec()));
    let ints = [1i32.to_le_bytes(), (-2i32).to_le_bytes()].concat();
    let floats = [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat();
    let array = |shape: &[i32], data| FieldValue::Array { shape: shape.to_vec(), data };
    let first = vec![
        FieldValue::Text("a"),
        number(0.5),
        FieldValue::Bytes(Cow::Borrowed(&ints)),
        array(&[2], &ints),
        array(&[2, 1], &floats),
    ];
    let second = vec![
        FieldValue::Null,
        FieldValue::Null,
        FieldValue::Bytes(Cow::Borrowed(&ints)),
        array(&[0], &[]),
        array(&[1, 2], &floats),
    ];
    let RowBatch { batch, bad, .. } = rows(fields, &[first, second]);
    assert!(bad.is_empty());
    assert_eq!(batch.column(0).as_string::<i32>().iter().collect::<Vec<_>>(), [Some("a"), None]);
    assert_eq!(batch.column(1).as_primitive::<Float32Type>().iter().collect::<Vec<_>>(), [Some(0.5), None]);
    let tensors = batch.column(2).as_fixed_size_list().values().as_primitive::<Int32Type>().values().to_vec();
    assert_eq!(tensors, [1, -2, 1, -2]);
    let lists = batch.column(3).as_list::<i32>();
    assert_eq!((lists.value_length(0), lists.value_length(1)), (2, 0));
    let sizes = batch.column(4).as_struct().column(1).as_fixed_size_list().values().clone();
    assert_eq!(sizes.as_primitive::<Int32Type>().values().to_vec(), [2, 1, 1, 2]);
    let kinds: Vec<&str> = batch.schema_ref().fields().iter().map(|field| kind_of(field).name()).collect();
    assert_eq!(kinds[2..], ["tensor", "ragged", "ragged"]);
}

#[test]
fn files_that_are_none_are_bad_rows() {
    let image = |bytes: &'static [u8]| vec![FieldValue::Text("k"), FieldValue::Bytes(Cow::Borrowed(bytes))];
    let null = vec![FieldValue::Text("n"), FieldValue::Null];
    let fields = vec![Field::new("__key__", DataType::Utf8, false), Media::Image.field("i")];
    let mut batch = BatchRows::new("f", &Arc::new(Schema::new(fields)), Some(0)).unwrap();
    let samples = [image(JPEG), image(b"GIF"), null, image(b""), image(JPEG)];
    for (row, values) in samples.iter().enumerate() {
        batch.push(10 + row as u64, values);
    }
    batch.refuse(12, "other".into());
    assert!(!batch.is_empty());
    let RowBatch { batch: rows, bad, source_bytes } = batch.take(99).unwrap();
    assert_eq!((rows.num_rows(), source_bytes), (3, 99));
    assert_eq!(bad.iter().map(|bad| bad.row).collect::<Vec<_>>(), [11, 12, 13]);
    let expected = "k, column i: expected a JPEG, PNG or WebP file, found 3 bytes that begin with \"GIF\"";
    assert_eq!(bad[0].reason, expected);
    assert!(batch.is_empty());
    assert_eq!(batch.take(100).unwrap().source_bytes, 1);
}

#[test]
fn videos_that_are_none_are_bad_rows() {
    let fields = vec![Media::Video.field("v")];
    let RowBatch { batch, bad, .. } = rows(fields, &[vec![FieldValue::Bytes(Cow::Borrowed(b"no video"))]]);
    assert_eq!((batch.num_rows(), bad.len()), (0, 1));
    assert!(bad[0].reason.starts_with("column v: expected a file with an index of its frames"), "{}", bad[0].reason);
}

#[test]
fn media_have_marks() {
    assert!(is_encoded_image(&Media::Image.field("i")));
    assert_eq!(video_index_of(&Media::Video.field("v")), Some("v_index"));
    assert_eq!(Media::Sound.field("s"), Field::new("s", DataType::LargeBinary, true));
    let options = FormatOptions { images: vec!["a".into()], audio: vec!["b".into(), "a".into()], ..Default::default() };
    assert_eq!(media_of(&options, "b").unwrap(), Some(Media::Sound));
    assert_eq!(media_of(&options, "c").unwrap(), None);
    assert_eq!(media_of(&options, "a").unwrap_err().to_string(), "option --audio: column a is in --image too");
}

#[test]
fn texts_are_checked() {
    assert_eq!(integer(b" -12\n"), Ok(FieldValue::Integer(-12)));
    assert_eq!(integer(b"1.5"), Err("\"1.5\" is no int64".into()));
    assert_eq!(integer(&[b'9'; 40]), Err(format!("\"{}…\" is no int64", "9".repeat(32))));
    assert_eq!(float(b"1e-05"), Ok(FieldValue::Float(1e-5)));
    assert!(matches!(float(b"nan"), Ok(FieldValue::Float(number)) if number.is_nan()));
    assert_eq!(text(b"a\xff"), Err("it is not UTF-8 from byte 1 on".into()));
    assert_eq!(json(b"{\"a\": [1]}"), Ok(FieldValue::Text("{\"a\": [1]}")));
    assert!(json(b"{\"a\": NaN}").unwrap_err().starts_with("it is no JSON"));
    assert!(json("[".repeat(10_000).as_bytes()).is_err(), "deeply nested");
}

#[test]
fn batches_end_at_their_limit() {
    let mut batch = BatchRows::new("f", &Arc::new(Schema::new(vec![Media::Sound.field("s")])), None).unwrap();
    assert!(!batch.is_full(0), "without rows");
    batch.push(0, &[FieldValue::Bytes(Cow::Borrowed(&[0; 100]))]);
    assert!(batch.is_full(100) && !batch.is_full(1000));
    let RowBatch { batch: rows, .. } = batch.take(0).unwrap();
    assert_eq!(rows, RecordBatch::try_from_iter_with_nullable([("s", rows.column(0).clone(), true)]).unwrap());
    (0..20_000).for_each(|row| batch.refuse(row, "bad".into()));
    assert!(batch.is_full(usize::MAX), "bad rows take memory too");
}
