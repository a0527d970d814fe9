//! Tests that pages contain the incoming rows in order, and keep their size limit.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, FixedSizeBinaryArray, LargeBinaryArray, ListArray, StringArray, StructArray};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use crate::{PageBuffer, retype_columns};

const PAGE_BYTES: usize = 1000;

fn pages_of(arrays: &[ArrayRef]) -> Vec<ArrayRef> {
    let mut buffer = PageBuffer::new(PAGE_BYTES);
    let mut pages = Vec::new();
    for array in arrays {
        pages.extend(buffer.push(array).expect("pages of one type are gathered"));
    }
    pages.extend(buffer.flush().expect("pages of one type are gathered"));
    pages
}

fn values(array: &ArrayRef) -> Vec<Option<Vec<u8>>> {
    if let Some(array) = array.as_fixed_size_binary_opt() {
        return array.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
    }
    array.as_binary::<i64>().iter().map(|value| value.map(<[u8]>::to_vec)).collect()
}

/// Cuts an array into slices of the given lengths and a rest, so that incoming arrays have offsets.
fn slices(array: &ArrayRef, lengths: &[usize]) -> Vec<ArrayRef> {
    let (mut parts, mut start) = (Vec::new(), 0);
    for length in lengths.iter().chain([&array.len()]) {
        let length = (*length).min(array.len() - start);
        parts.push(array.slice(start, length));
        start += length;
    }
    parts
}

#[test]
fn nested_fields_get_the_metadata_of_the_file() {
    let compressed = |name: &str, data_type: DataType| {
        let metadata = [("lance-encoding:compression".to_string(), "zstd".to_string())];
        Arc::new(Field::new(name, data_type, true).with_metadata(metadata.into()))
    };
    let lists = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(4)])];
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    let words: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("b"), Some("c")]));
    let members = vec![
        (Arc::new(Field::new("list", lists.data_type().clone(), true)), lists.clone()),
        (Arc::new(Field::new("word", DataType::Utf8, true)), words.clone()),
    ];
    let structs: ArrayRef = Arc::new(StructArray::from(members));
    let list_type = DataType::List(compressed("item", DataType::Int64));
    let members = vec![compressed("list", list_type.clone()), compressed("word", DataType::Utf8)];
    let fields = vec![
        Field::new("list", list_type, true),
        Field::new("struct", DataType::Struct(members.into()), true),
        Field::new("word", DataType::Utf8, true),
    ];
    let schema = Arc::new(Schema::new(fields));
    let columns = [lists.slice(1, 3), structs.slice(1, 3), words.slice(1, 3)];
    let batch = retype_columns(&schema, &columns).expect("the types differ in metadata only");
    assert_eq!(batch.schema(), schema);
    assert_eq!(batch.column(0).as_list::<i32>().value(2).as_primitive::<Int64Type>().values(), &[4]);
    let found = batch.column(1).as_struct();
    assert_eq!(found.column(1), &words.slice(1, 3));
    assert!(found.column(0).is_null(0) && found.column(0).is_valid(1));
}

proptest! {
    #[test]
    fn fixed_pages_are_full_and_keep_the_order(
        row_bytes in 1usize..1500,
        rows in 0usize..60,
        lengths in prop::collection::vec(0usize..20, 0..6),
    ) {
        let rows: Vec<Vec<u8>> = (0..rows).map(|row| (0..row_bytes).map(|byte| (row * 7 + byte) as u8).collect()).collect();
        let array = FixedSizeBinaryArray::try_from_sparse_iter_with_size(rows.iter().map(Some), row_bytes as i32);
        let array: ArrayRef = Arc::new(array.expect("rows have one size"));
        let pages = pages_of(&slices(&array, &lengths));
        prop_assert_eq!(pages.iter().flat_map(values).collect::<Vec<_>>(), values(&array));
        let rows_per_page = (PAGE_BYTES / row_bytes).max(1);
        for page in pages.iter().rev().skip(1) {
            prop_assert_eq!(page.len(), rows_per_page);
        }
        prop_assert!(pages.iter().all(|page| (1..=rows_per_page).contains(&page.len())));
    }

    #[test]
    fn variable_pages_keep_the_limit_and_the_order(
        sizes in prop::collection::vec(prop::option::of(0usize..1500), 0..60),
        lengths in prop::collection::vec(0usize..20, 0..6),
    ) {
        let rows = sizes.iter().enumerate().map(|(row, size)| size.map(|size| vec![row as u8; size]));
        let array: ArrayRef = Arc::new(LargeBinaryArray::from_iter(rows));
        let pages = pages_of(&slices(&array, &lengths));
        prop_assert_eq!(pages.iter().flat_map(values).collect::<Vec<_>>(), values(&array));
        for page in &pages {
            let bytes: usize = values(page).into_iter().flatten().map(|value| value.len()).sum();
            prop_assert!(bytes <= PAGE_BYTES || page.len() == 1);
            prop_assert!(!page.is_empty());
        }
    }
}
