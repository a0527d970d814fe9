//! Casts of lists to vectors.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, LargeListArray, ListArray, NullArray};
use arrow_schema::{DataType, Field};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ColumnarValue;

use crate::cost::{Call, vectors};
use crate::vector_casts::VectorCast;

/// A cast to `FLOAT[2]`.
fn to_pairs(is_try: bool) -> VectorCast {
    let vector = DataType::FixedSizeList(Arc::new(Field::new_list_field(DataType::Float32, true)), 2);
    VectorCast::new(Arc::new(Field::new("list", vector, true)), is_try)
}

fn pairs(rows: &[Option<[f32; 2]>]) -> FixedSizeListArray {
    let rows = rows.iter().map(|row| row.map(|pair| pair.map(Some)));
    FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 2)
}

fn lists(rows: &[Option<Vec<i64>>]) -> ListArray {
    let rows = rows.iter().map(|row| row.as_ref().map(|row| row.iter().copied().map(Some).collect::<Vec<_>>()));
    ListArray::from_iter_primitive::<Int64Type, _, _>(rows)
}

#[test]
fn slices_are_cast_from_where_they_begin() {
    let rows = [Some(vec![1, 2]), Some(vec![3, 4]), None, Some(vec![5, 6]), Some(vec![7, 8])];
    let all = [Some([1.0, 2.0]), Some([3.0, 4.0]), None, Some([5.0, 6.0]), Some([7.0, 8.0])];
    let short: ArrayRef = Arc::new(lists(&rows));
    let large: ArrayRef = Arc::new(LargeListArray::from_iter_primitive::<Int64Type, _, _>(
        rows.iter().map(|row| row.as_ref().map(|row| row.iter().copied().map(Some).collect::<Vec<_>>())),
    ));
    for lists in [short, large] {
        for start in 0..rows.len() {
            for end in start..=rows.len() {
                let cast = to_pairs(false).cast(&lists.slice(start, end - start)).expect("pairs");
                assert_eq!(cast, pairs(&all[start..end]), "rows {start}..{end}");
            }
        }
    }
}

#[test]
fn another_length_is_an_error_that_names_it() {
    for found in [0, 1, 3] {
        let array: ArrayRef = Arc::new(lists(&[Some(vec![1, 2]), None, Some(vec![9; found])]));
        let error = to_pairs(false).cast(&array).expect_err("another length").to_string();
        assert!(error.contains(&format!("a list of {found} elements cannot be cast to a vector of 2")), "{error}");
        let cast = to_pairs(true).cast(&array).expect("pairs");
        assert_eq!(cast, pairs(&[Some([1.0, 2.0]), None, None]));
    }
    // A null row may have elements below it.
    let item = Arc::new(Field::new_list_field(DataType::Int64, true));
    let (_, offsets, values, _) = lists(&[Some(vec![1, 2]), Some(vec![3, 4, 5])]).into_parts();
    let nulls = vec![true, false].into();
    let array: ArrayRef = Arc::new(ListArray::new(item, offsets, values, Some(nulls)));
    assert_eq!(to_pairs(false).cast(&array).expect("pairs"), pairs(&[Some([1.0, 2.0]), None]));
}

#[test]
fn null_becomes_a_null_vector() {
    let nulls: ArrayRef = Arc::new(NullArray::new(2));
    let cast = to_pairs(false).cast(&nulls).expect("pairs");
    assert_eq!((cast.len(), cast.null_count()), (2, 2));
    let elements: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None])]));
    let cast = to_pairs(false).cast(&elements).expect("pairs");
    assert!(cast.is_valid(0));
    let elements = cast.value(0);
    assert_eq!(elements.as_primitive::<Float32Type>().iter().collect::<Vec<_>>(), [Some(1.0), None]);
}

#[test]
fn the_cost_counts_the_elements_of_null_vectors() {
    let args = [ColumnarValue::Scalar(ScalarValue::Null), ColumnarValue::Scalar(ScalarValue::UInt64(Some(1 << 30)))];
    assert!(vectors(&Call { args: &args, num_rows: 3, result: &DataType::Null }).bytes >= 3 * (1 << 30) * 24);
}
