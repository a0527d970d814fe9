//! The functions that read the headers of images.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, BinaryArray, BinaryViewArray, LargeBinaryArray};
use arrow_schema::{DataType, Field};
use datafusion::logical_expr::ScalarUDFImpl as _;

use super::call;
use crate::image_property::ImageProperty;

const GIF: &[u8] = b"GIF89a\x80\x02\xE0\x01";
const PNG: &[u8] = b"\x89PNG\r\n\x1A\n\0\0\0\x0DIHDR\0\0\0\x03\0\0\0\x02";

fn numbers(column: &ArrayRef) -> Vec<Option<i64>> {
    column.as_primitive::<Int64Type>().iter().collect()
}

#[test]
fn other_content_is_null_for_all_functions() {
    let files = [Some(GIF), Some(b"text".as_slice()), None, Some(b"".as_slice()), Some(PNG)];
    let columns: [ArrayRef; 3] = [
        Arc::new(BinaryArray::from_iter(files)),
        Arc::new(LargeBinaryArray::from_iter(files)),
        Arc::new(BinaryViewArray::from_iter(files)),
    ];
    for column in columns {
        let field = || Field::new("image", column.data_type().clone(), true);
        let widths = call(&ImageProperty::width(), field(), column.clone()).expect("widths");
        assert_eq!(numbers(&widths), [Some(640), None, None, None, Some(3)]);
        let heights = call(&ImageProperty::height(), field(), column.clone()).expect("heights");
        assert_eq!(numbers(&heights), [Some(480), None, None, None, Some(2)]);
        let formats = call(&ImageProperty::format(), field(), column.clone()).expect("formats");
        let formats = formats.as_string::<i32>();
        assert_eq!(formats.iter().collect::<Vec<_>>(), [Some("gif"), None, None, None, Some("png")]);
    }
}

#[test]
fn binary_values_are_taken_as_they_are() {
    let width = ImageProperty::width();
    for (from, to) in [
        (DataType::Binary, DataType::Binary),
        (DataType::LargeBinary, DataType::LargeBinary),
        (DataType::BinaryView, DataType::BinaryView),
        (DataType::FixedSizeBinary(4), DataType::Binary),
        (DataType::Null, DataType::Binary),
        (DataType::Dictionary(DataType::Int32.into(), DataType::LargeBinary.into()), DataType::LargeBinary),
    ] {
        assert_eq!(width.coerce_types(&[from]).expect("a type"), [to]);
    }
    let error = width.coerce_types(&[DataType::Utf8]).expect_err("a text").to_string();
    assert!(error.contains("image_width needs a binary value"), "{error}");
}
