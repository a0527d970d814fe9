//! Lists that are decoded are those that were written.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Int32Type, Int64Type, UInt8Type, UInt16Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, LargeListArray, ListArray, PrimitiveArray, UInt64Array};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::Field;
use proptest::prelude::*;

use super::{encoded, strategies};
use crate::gather_lists;

/// Makes lists of these lengths, of which some are null. The numbers stay below `max`, in runs of `repeats`.
fn lists<T: ArrowPrimitiveType>(lengths: &[Option<usize>], number: impl Fn(usize) -> T::Native) -> ListArray {
    let total = lengths.iter().flatten().sum();
    let values = PrimitiveArray::<T>::from_iter_values((0..total).map(number));
    let nulls: Vec<bool> = lengths.iter().map(Option::is_some).collect();
    let nulls = nulls.contains(&false).then(|| NullBuffer::from(nulls));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().map(|length| length.unwrap_or(0)));
    ListArray::new(Arc::new(Field::new_list_field(T::DATA_TYPE, true)), offsets, Arc::new(values), nulls)
}

/// Compares rows that are decoded with those of the array.
fn check(array: &ArrayRef, metadata: &[(&str, &str)], width: usize, wanted: &[u64]) {
    for strategy in strategies() {
        let Ok(page) = encoded(array, strategy.as_ref(), metadata, width) else { continue };
        let mut rows = wanted.to_vec();
        rows.sort_unstable();
        rows.dedup();
        let places: Vec<u64> = wanted.iter().map(|row| rows.binary_search(row).unwrap() as u64).collect();
        let read = page.read(&rows).unwrap();
        let found = gather_lists(&read, Some(&places), array.data_type(), None).unwrap();
        let expected = arrow_select::take::take(array, &UInt64Array::from(wanted.to_vec()), None).unwrap();
        assert_eq!(&found, &expected, "rows {wanted:?}");
        let found = gather_lists(&[read.clone(), read].concat(), None, array.data_type(), None).unwrap();
        assert_eq!(found.len(), 2 * rows.len());
        let expected = arrow_select::take::take(array, &UInt64Array::from(rows.clone()), None).unwrap();
        assert_eq!(&found.slice(rows.len(), rows.len()), &expected);
    }
}

#[test]
fn pages_of_the_usual_writers_are_decoded() {
    let lengths: Vec<Option<usize>> = (0..500).map(|row| Some(1 + row * 7 % 900)).collect();
    let array: ArrayRef = Arc::new(lists::<Int32Type>(&lengths, |index| (index * 7919 % 50_000) as i32));
    for strategy in strategies() {
        let page = encoded(&array, strategy.as_ref(), &[], 4).unwrap();
        let rows: Vec<u64> = (0..500).collect();
        let found = gather_lists(&page.read(&rows).unwrap(), None, array.data_type(), None).unwrap();
        assert_eq!(&found, &array);
    }
    let [_, strategy] = strategies();
    let large: LargeListArray = {
        let (_, offsets, values, nulls) = lists::<Int32Type>(&lengths, |index| index as i32).into_parts();
        let offsets = OffsetBuffer::from_lengths(offsets.lengths());
        LargeListArray::new(Arc::new(Field::new_list_field(values.data_type().clone(), true)), offsets, values, nulls)
    };
    let array: ArrayRef = Arc::new(large);
    let page = encoded(&array, strategy.as_ref(), &[("lance-encoding:compression", "zstd")], 4).unwrap();
    let found = gather_lists(&page.read(&[3, 400]).unwrap(), Some(&[1, 0, 1]), array.data_type(), None).unwrap();
    let expected = arrow_select::take::take(&array, &UInt64Array::from(vec![400, 3, 400]), None).unwrap();
    assert_eq!(&found, &expected);
}

#[test]
fn pages_with_deeper_lists_are_left_to_lance() {
    let inner = lists::<Int32Type>(&[Some(2), Some(3), Some(1), Some(4)], |index| index as i32);
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let array: ArrayRef = Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([1, 3]), Arc::new(inner), None));
    let [_, strategy] = strategies();
    let unsupported = encoded(&array, strategy.as_ref(), &[], 4).err().unwrap();
    assert!(unsupported.to_string().contains("deeper lists"), "{unsupported}");
}

#[test]
fn too_many_numbers_for_offsets_of_32_bits_are_an_error() {
    let array: ArrayRef = Arc::new(lists::<UInt8Type>(&[Some(30_000)], |index| index as u8));
    let [_, strategy] = strategies();
    let page = encoded(&array, strategy.as_ref(), &[], 1).unwrap();
    let places = vec![0; (1 << 31) / 30_000 + 1];
    let error = gather_lists(&page.read(&[0]).unwrap(), Some(&places), array.data_type(), None).unwrap_err();
    assert!(error.to_string().contains("fewer rows"), "{error}");
}

fn length() -> impl Strategy<Value = Option<usize>> {
    prop_oneof![
        2 => Just(Some(0)),
        1 => Just(None),
        4 => (1usize..20).prop_map(Some),
        3 => (1usize..3_000).prop_map(Some),
        1 => Just(Some(1_024)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn rows_are_those_that_were_written(
        lengths in prop::collection::vec(length(), 1..120),
        kind in 0..6,
        wanted in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
        all in any::<bool>(),
        without in 0..4,
    ) {
        let lengths: Vec<Option<usize>> = lengths.into_iter().map(|length| match (without, length) {
            (0, None) => Some(3),
            (1, Some(0)) => Some(1),
            (2, None | Some(0)) => Some(2),
            (_, length) => length,
        }).collect();
        let wanted: Vec<u64> = match all {
            true => (0..lengths.len() as u64).collect(),
            false => wanted.iter().map(|index| index.index(lengths.len()) as u64).collect(),
        };
        let (array, width, metadata): (ListArray, usize, &[(&str, &str)]) = match kind {
            0 => (lists::<Int32Type>(&lengths, |index| (index * 7919 % 60_000) as i32), 4, &[]),
            1 => (lists::<Float32Type>(&lengths, |index| (index as f32).sin()), 4, &[]),
            2 => (lists::<Int64Type>(&lengths, |index| -((index * 31) as i64)), 8, &[]),
            3 => (lists::<UInt8Type>(&lengths, |index| (index * 13) as u8), 1, &[("lance-encoding:compression", "lz4")]),
            4 => (lists::<UInt16Type>(&lengths, |index| (index / 40) as u16), 2, &[]),
            _ => (lists::<Float32Type>(&lengths, |index| (index as f32).sqrt()), 4,
                  &[("lance-encoding:compression", "zstd"), ("lance-encoding:bss", "on")]),
        };
        check(&(Arc::new(array) as ArrayRef), metadata, width, &wanted);
    }
}
