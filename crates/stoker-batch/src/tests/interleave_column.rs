//! Rows of several arrays are those that Arrow's kernel picks.

use std::sync::Arc;

use arrow_array::types::{Int32Type, UInt8Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Int64Array, LargeListArray, ListArray, StringArray};
use arrow_select::interleave::interleave;
use proptest::prelude::*;

use crate::{BufferPool, interleave_column};

/// Arrays of one type, by number. Some have NULLs, and all begin within their memory.
fn arrays(kind: usize, num_rows: usize) -> [ArrayRef; 2] {
    let list = |array: usize, row: usize| {
        let values = (0..(row * 7 + array) % 5).map(move |value| Some((value + 10 * row + array) as i32));
        (kind != 1 || !row.is_multiple_of(4)).then_some(values)
    };
    [0, 1].map(|array| -> ArrayRef {
        let lists = (0..num_rows + 2).map(|row| list(array, row));
        let numbers = (0..num_rows + 2).map(|row| (row * 3 + array) as i64);
        let made: ArrayRef = match kind {
            0 | 1 => Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
            2 => Arc::new(LargeListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
            3 => Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(
                (0..num_rows + 2).map(|row| Some([None, Some(row as i32)])),
            )),
            4 => Arc::new(FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>(
                (0..num_rows + 2).map(|row| Some((0..3).map(move |item| Some((row * 5 + item + array) as u8)))),
                3,
            )),
            5 => Arc::new(FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>(
                (0..num_rows + 2).map(|row| (row % 3 != 1).then_some([Some(row as u8), None])),
                2,
            )),
            6 => Arc::new(StringArray::from_iter((0..num_rows + 2).map(|row| Some(format!("{row} of {array}"))))),
            _ => Arc::new(Int64Array::from_iter_values(numbers)),
        };
        made.slice(1, num_rows)
    })
}

proptest! {
    #[test]
    fn rows_are_those_of_the_kernel(
        kind in 0usize..8,
        num_rows in 1usize..40,
        wanted in prop::collection::vec((0usize..2, any::<prop::sample::Index>()), 0..60),
        is_pooled in any::<bool>(),
    ) {
        let arrays = arrays(kind, num_rows);
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        let places: Vec<(usize, usize)> =
            wanted.into_iter().map(|(array, index)| (array, index.index(num_rows))).collect();
        let pool = BufferPool::new(1 << 20);
        let found = interleave_column(&arrays, &places, is_pooled.then_some(&pool)).unwrap();
        prop_assert_eq!(&found, &interleave(&arrays, &places).unwrap());
        found.to_data().validate_full().unwrap();
    }
}

#[test]
fn rows_of_other_types_are_an_error() {
    let [lists, _] = arrays(0, 4);
    let [numbers, _] = arrays(7, 4);
    interleave_column(&[lists.as_ref(), numbers.as_ref()], &[(0, 0), (1, 0)], None).unwrap_err();
    interleave_column(&[], &[(0, 0)], None).unwrap_err();
}
