//! Columns of text, and lists of any length.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt8Type;
use arrow_array::{Array, ArrayRef, LargeBinaryArray, LargeStringArray, StringArray, StringViewArray};
use arrow_buffer::Buffer;
use arrow_schema::DataType;

use crate::{
    BadValue, BatchDecoder, Error, ListSpec, OutputSpec, Result, Row, Takes, ValueDecoder, is_text, list_array,
    value_bytes,
};

/// Makes lists of the bytes of values, in elements of some bytes. It refuses values that begin with `x`.
struct Bytes {
    takes: Takes,
    shape: Vec<usize>,
}

impl ValueDecoder for Bytes {
    fn noun(&self) -> &'static str {
        "value"
    }

    fn validate(&self) -> Result<()> {
        Ok(())
    }

    fn outputs(&self) -> Vec<OutputSpec> {
        Vec::new()
    }

    fn list(&self) -> Option<ListSpec> {
        Some(ListSpec { number: DataType::UInt8, shape: self.shape.clone(), bytes_per_byte: 1 })
    }

    fn takes(&self) -> Takes {
        self.takes
    }

    fn decode(&self, _: &Row<'_>, _: &mut [&mut [u8]]) -> Result<(), BadValue> {
        Err(BadValue::fatal("it makes lists"))
    }

    fn decode_list(&self, row: &Row<'_>) -> Result<Vec<u8>, BadValue> {
        let found = if row.is_text { row.text()?.as_bytes() } else { row.file()? };
        if found.starts_with(b"x") { Err(BadValue::new("an x")) } else { Ok(found.to_vec()) }
    }
}

/// Decodes a column. Returns its lists, and the rows that failed.
fn lists(values: &dyn Array, takes: Takes) -> Result<(Vec<Vec<u8>>, Vec<usize>)> {
    let decoder = BatchDecoder::try_new(Box::new(Bytes { takes, shape: Vec::new() }), 2)?;
    let mut lists = vec![b"before".to_vec(); values.len()];
    let failed = decoder.decode_lists(values, &[], &vec![0; values.len()], lists.iter_mut().collect())?;
    Ok((lists, failed.into_iter().map(|(row, _)| row).collect()))
}

#[test]
fn texts_of_all_types_are_decoded_and_nulls_fail() {
    let texts = [Some("ab"), None, Some(""), Some("xé"), Some("日本")];
    let columns: [ArrayRef; 3] = [
        Arc::new(StringArray::from_iter(texts)),
        Arc::new(LargeStringArray::from_iter(texts)),
        Arc::new(StringViewArray::from_iter(texts)),
    ];
    for column in columns {
        assert!(is_text(column.data_type()));
        assert_eq!(value_bytes(column.as_ref()), 2 + 3 + 6);
        for takes in [Takes::Texts, Takes::FilesOrTexts] {
            let (found, failed) = lists(column.as_ref(), takes).unwrap();
            assert_eq!(failed, [1, 3]);
            assert_eq!((&found[0][..], &found[2][..], &found[4][..]), (&b"ab"[..], &b""[..], "日本".as_bytes()));
        }
        for takes in [Takes::Files, Takes::FileLists] {
            let error = lists(column.as_ref(), takes).unwrap_err();
            assert!(matches!(error, Error::NotFiles { .. }), "{error}");
        }
    }
    let files = LargeBinaryArray::from_iter([Some(b"ab"), None]);
    assert_eq!(lists(&files, Takes::FilesOrTexts).unwrap().1, [1]);
    assert_eq!(value_bytes(&files), 2);
    let error = lists(&files, Takes::Texts).unwrap_err();
    assert!(error.to_string().starts_with("texts are decoded from columns of text, not of LargeBinary"), "{error}");
}

#[test]
fn lists_become_an_array() {
    let spec = ListSpec { number: DataType::UInt8, shape: Vec::new(), bytes_per_byte: 1 };
    let array = list_array(&spec, Buffer::from(vec![1u8, 2, 3]), [2, 0, 1].into_iter()).unwrap();
    assert_eq!(array.data_type(), &spec.data_type());
    let rows: Vec<Vec<u8>> =
        array.as_list::<i64>().iter().map(|row| row.unwrap().as_primitive::<UInt8Type>().values().to_vec()).collect();
    assert_eq!(rows, [vec![1, 2], vec![], vec![3]]);
    assert!(list_array(&spec, Buffer::from(vec![1u8]), [2].into_iter()).is_err());
    let empty = list_array(&spec, Buffer::from(Vec::<u8>::new()), std::iter::empty()).unwrap();
    assert_eq!(empty.len(), 0);

    let boxes = ListSpec { number: DataType::Float32, shape: vec![2, 2], bytes_per_byte: 1 };
    assert_eq!(boxes.element_bytes(), 16);
    let numbers: Vec<f32> = (0..12).map(|number| number as f32).collect();
    let array = list_array(&boxes, Buffer::from_vec(numbers), [32, 16].into_iter()).unwrap();
    assert_eq!(array.data_type(), &boxes.data_type());
    assert_eq!(array.as_list::<i64>().value(1).as_fixed_size_list().value(0).len(), 2);
}

#[test]
fn a_decoder_that_makes_parts_of_elements_fails() {
    let decoder = Bytes { takes: Takes::Texts, shape: vec![2] };
    let decoder = BatchDecoder::try_new(Box::new(decoder), 1).unwrap();
    let values = StringArray::from(vec!["abcd", "abc"]);
    let mut lists = vec![Vec::new(); 2];
    let failed = decoder.decode_lists(&values, &[], &[0; 2], lists.iter_mut().collect()).unwrap();
    assert_eq!(failed, [(1, BadValue::fatal("the decoder made a part of an element"))]);
    assert_eq!(lists[0], b"abcd");
}
