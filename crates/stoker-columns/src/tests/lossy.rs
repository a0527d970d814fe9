//! Tests of columns that hold their values with an error.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, UInt16Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, UInt8Array};
use arrow_schema::{DataType, Field};
use half::f16;

use super::{lists, tensor};
use crate::*;

fn lossy(plain: &Field, codec: &str) -> (Field, LossyColumn) {
    let field = chosen_codec(&with_codec(plain, codec)).expect("a codec").expect("a column");
    let lossy = LossyColumn::of(&field).expect("metadata");
    (field, lossy)
}

fn column(plain: &Field, values: ArrayRef) -> ArrayRef {
    let DataType::FixedSizeList(item, length) = plain.data_type() else { panic!("{plain:?}") };
    Arc::new(FixedSizeListArray::new(item.clone(), *length, values, None))
}

#[test]
fn floats_are_rounded_and_the_largest_error_is_measured() {
    let plain = tensor(DataType::Float32, &[2, 2]);
    let values: ArrayRef =
        Arc::new(Float32Array::from(vec![0.1, f32::NAN, f32::INFINITY, 1.0, 2049.0, 0.5, -3.0, 1e-9]));
    let (field, lossy) = lossy(&plain, "float16");
    assert_eq!(kind_of(&field).label(&field), "tensor float16[2, 2]");
    let (found, error) =
        lossy.convert(&field, &column(&plain, values.clone())).expect("rounded").expect("other values");
    assert_eq!(found.data_type(), field.data_type());
    assert_eq!(error, 1.0, "2049 becomes 2048");
    let found = found.as_fixed_size_list().values().clone();
    let found = found.as_primitive::<Float16Type>();
    assert_eq!((found.value(0), found.value(1).is_nan(), found.value(2)), (f16::from_f32(0.1), true, f16::INFINITY));
    let noted = lossy.with_error(error);
    assert_eq!((noted.max_abs_error, noted.with_error(0.5).max_abs_error), (Some(1.0), Some(1.0)));
    assert_eq!(LossyColumn::of(&noted.put(field.clone())), Some(noted));

    let (field, lossy) = self::lossy(&plain, "bfloat16");
    assert_eq!(kind_of(&field).label(&field), "tensor bfloat16[2, 2]");
    let (found, error) = lossy.convert(&field, &column(&plain, values)).expect("rounded").expect("other values");
    assert_eq!((found.as_fixed_size_list().values().as_primitive::<UInt16Type>().value(3), error), (0x3f80, 1.0));
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    let plain = Field::new("x", lists(DataType::Float64, 2), true);
    let (field, lossy) = lossy(&plain, "float16");
    let values: ArrayRef = Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 70_000.0]));
    let mismatch = lossy.convert(&field, &column(&plain, values)).expect_err("too large");
    assert_eq!((mismatch.row, mismatch.found.as_str()), (Some(1), "70000"));
    // Values that are rounded already stay as they are.
    let rounded = column(&field, Arc::new(arrow_array::Float16Array::from(vec![f16::ONE; 2])));
    assert_eq!(lossy.convert(&field, &rounded), Ok(None));
}

#[test]
fn pixels_become_files_of_images() {
    for (shape, has_color) in
        [(&[3, 16, 24][..], true), (&[16, 24, 3], true), (&[16, 24], false), (&[1, 16, 24], false)]
    {
        let plain = tensor(DataType::UInt8, shape);
        let (field, lossy) = lossy(&plain, "jpeg:95");
        assert!(is_encoded_image(&field) && !field.is_nullable());
        let num_bytes = shape.iter().product::<usize>();
        let pixels: Vec<u8> = (0..2 * num_bytes).map(|at| (at % num_bytes * 200 / num_bytes) as u8).collect();
        let (files, error) = lossy
            .convert(&field, &column(&plain, Arc::new(UInt8Array::from(pixels))))
            .expect("files")
            .expect("other values");
        kind_of(&field).check(&field, &files).expect("images");
        assert!((0.0..40.0).contains(&error), "{error}");
        assert_eq!(files.len(), 2);
        let components = |file: &[u8]| {
            let at = file.windows(2).position(|marker| marker == [0xff, 0xc0]).expect("a baseline frame");
            (
                u16::from_be_bytes([file[at + 5], file[at + 6]]),
                u16::from_be_bytes([file[at + 7], file[at + 8]]),
                file[at + 9],
            )
        };
        assert_eq!(components(files.as_binary::<i64>().value(1)), (16, 24, if has_color { 3 } else { 1 }));
        assert_eq!(lossy.plain_row_bytes(&field), Some(num_bytes));
    }
}

#[test]
fn columns_that_cannot_be_lossy_are_named() {
    for (plain, codec, part) in [
        (tensor(DataType::Int64, &[2]), "float16", "takes float32 and float64"),
        (tensor(DataType::Float32, &[3, 8, 8]), "jpeg", "takes uint8 tensors"),
        (tensor(DataType::UInt8, &[4, 8, 9]), "jpeg", "takes uint8 tensors"),
        (tensor(DataType::UInt8, &[8, 8]), "jpeg:0", "from 1 to 100"),
        (tensor(DataType::Float32, &[2]), "float16:3", "no levels"),
        (Field::new("x", DataType::Float32, true), "bfloat16", "takes tensors and vectors"),
    ] {
        let error = chosen_codec(&with_codec(&plain, codec)).expect_err(part);
        assert!(error.contains(part) && error.contains("column x"), "{error}");
    }
}

#[test]
fn lossy_columns_take_what_they_were_made_of() {
    let plain = tensor(DataType::Float32, &[2, 2]);
    let (field, lossy) = lossy(&plain, "float16");
    assert!(lossy.takes(&field, &plain));
    assert!(!lossy.takes(&field, &tensor(DataType::Float64, &[2, 2])));
    assert!(!lossy.takes(&field, &tensor(DataType::Float32, &[4])));
    let pixels = tensor(DataType::UInt8, &[3, 8, 8]);
    let (field, lossy) = self::lossy(&pixels, "jpeg");
    assert!(lossy.takes(&field, &pixels) && !lossy.takes(&field, &tensor(DataType::UInt8, &[8, 8, 3])));
}
