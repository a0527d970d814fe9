//! The functions that reduce tensors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, UInt8Array, UInt16Array};
use arrow_schema::{DataType, Field};
use half::{bf16, f16};

use super::call;
use crate::tensor_reduction::TensorReduction;

/// Returns mean, least, greatest, standard deviation and norm of each row.
fn reduced_as(field: &Field, column: &ArrayRef) -> Vec<[Option<f64>; 5]> {
    let functions = [
        TensorReduction::mean(),
        TensorReduction::min(),
        TensorReduction::max(),
        TensorReduction::std(),
        TensorReduction::norm(),
    ];
    let results = functions.map(|function| call(&function, field.clone(), column.clone()).expect("numbers"));
    let of_row = |row: usize| {
        results.each_ref().map(|result| {
            let result = result.as_primitive::<Float64Type>();
            result.is_valid(row).then(|| result.value(row))
        })
    };
    (0..column.len()).map(of_row).collect()
}

fn reduced(column: ArrayRef) -> Vec<[Option<f64>; 5]> {
    reduced_as(&Field::new("tensor", column.data_type().clone(), true), &column)
}

fn tensors<T: ArrowPrimitiveType>(rows: Vec<Option<Vec<Option<T::Native>>>>, length: i32) -> ArrayRef {
    Arc::new(FixedSizeListArray::from_iter_primitive::<T, _, _>(rows, length))
}

#[test]
fn all_numbers_are_reduced() {
    fn check<T: ArrowPrimitiveType>(values: [T::Native; 4]) {
        let row = values.map(Some).to_vec();
        let found = reduced(tensors::<T>(vec![None, Some(row)], 4));
        // 2, 4, 4, 6: the deviations from the mean 4 are -2, 0, 0, 2.
        let expected = [Some(4.0), Some(2.0), Some(6.0), Some(2f64.sqrt()), Some(72f64.sqrt())];
        assert_eq!(found, [[None; 5], expected], "{}", T::DATA_TYPE);
    }
    check::<Int8Type>([2, 4, 4, 6]);
    check::<Int16Type>([2, 4, 4, 6]);
    check::<Int32Type>([2, 4, 4, 6]);
    check::<Int64Type>([2, 4, 4, 6]);
    check::<UInt8Type>([2, 4, 4, 6]);
    check::<UInt16Type>([2, 4, 4, 6]);
    check::<UInt32Type>([2, 4, 4, 6]);
    check::<UInt64Type>([2, 4, 4, 6]);
    check::<Float16Type>([2.0, 4.0, 4.0, 6.0].map(f16::from_f32));
    check::<Float32Type>([2.0, 4.0, 4.0, 6.0]);
    check::<Float64Type>([2.0, 4.0, 4.0, 6.0]);
}

#[test]
fn bfloat16_is_read_from_its_bits() {
    let bits = UInt16Array::from_iter_values([2.0, 4.0, 4.0, 6.0].map(|value| bf16::from_f32(value).to_bits()));
    let item = Arc::new(Field::new_list_field(DataType::UInt16, true));
    let column: ArrayRef = Arc::new(FixedSizeListArray::new(item, 4, Arc::new(bits), None));
    let metadata = [(stoker_columns::DTYPE_KEY.to_string(), "bfloat16".to_string())];
    let field = Field::new("tensor", column.data_type().clone(), false).with_metadata(metadata.into());
    let expected = [Some(4.0), Some(2.0), Some(6.0), Some(2f64.sqrt()), Some(72f64.sqrt())];
    assert_eq!(reduced_as(&field, &column), [expected]);
}

#[test]
fn floats_of_eight_bits_are_read_from_their_bits() {
    // 2, 4, 4 and 6 with 4 bits of exponent (bias 7) and 3 of mantissa.
    let bits = UInt8Array::from_iter_values([0x40, 0x48, 0x48, 0x4c]);
    let item = Arc::new(Field::new_list_field(DataType::UInt8, true));
    let column: ArrayRef = Arc::new(FixedSizeListArray::new(item, 4, Arc::new(bits), None));
    let metadata = [(stoker_columns::DTYPE_KEY.to_string(), "float8_e4m3fn".to_string())];
    let field = Field::new("tensor", column.data_type().clone(), false).with_metadata(metadata.into());
    let expected = [Some(4.0), Some(2.0), Some(6.0), Some(2f64.sqrt()), Some(72f64.sqrt())];
    assert_eq!(reduced_as(&field, &column), [expected]);
}

#[test]
fn null_elements_do_not_count_and_nan_does() {
    let rows = vec![
        Some(vec![Some(2.0), Some(4.0), None, Some(4.0), Some(6.0)]),
        Some(vec![None; 5]),
        Some([1.0, -f64::NAN, 2.0, 0.0, 0.0].map(Some).to_vec()),
        Some([f64::INFINITY, 1.0, f64::NEG_INFINITY, 0.0, 0.0].map(Some).to_vec()),
    ];
    let found = reduced(tensors::<Float64Type>(rows, 5));
    assert_eq!(found[0], [Some(4.0), Some(2.0), Some(6.0), Some(2f64.sqrt()), Some(72f64.sqrt())]);
    assert_eq!(found[1], [None; 5]);
    let bits = |number: Option<f64>| number.map(f64::to_bits);
    for number in found[2] {
        assert_eq!(bits(number), bits(Some(f64::NAN)), "a NaN without a sign");
    }
    let [mean, least, greatest, deviation, norm] = found[3];
    assert_eq!((bits(mean), bits(deviation)), (bits(Some(f64::NAN)), bits(Some(f64::NAN))));
    assert_eq!((least, greatest, norm), (Some(f64::NEG_INFINITY), Some(f64::INFINITY), Some(f64::INFINITY)));
}

#[test]
fn digits_are_kept_beside_great_and_small_numbers() {
    let close = |found: Option<f64>, expected: f64| {
        let found = found.expect("a number");
        assert!((found - expected).abs() <= 1e-12 * expected, "{found} instead of {expected}");
    };
    let rows = vec![
        Some(vec![Some(1e9 + 1.0), Some(1e9 + 3.0)]),
        Some(vec![Some(3e200), Some(4e200)]),
        Some(vec![Some(3e-200), Some(4e-200)]),
        Some(vec![Some(0.0), Some(0.0)]),
    ];
    let found = reduced(tensors::<Float64Type>(rows, 2));
    close(found[0][3], 1.0);
    close(found[1][3], 0.5e200);
    close(found[1][4], 5e200);
    close(found[2][3], 0.5e-200);
    close(found[2][4], 5e-200);
    assert_eq!(found[3], [Some(0.0); 5]);
}

#[test]
fn other_types_are_refused() {
    let column: ArrayRef = Arc::new(UInt16Array::from(vec![1]));
    let field = Field::new("label", DataType::UInt16, false);
    let error = call(&TensorReduction::std(), field, column).expect_err("a number").to_string();
    assert!(error.contains("tensor_std: label (UInt16) is not a tensor of numbers"), "{error}");
}
