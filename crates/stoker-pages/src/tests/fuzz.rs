//! Changed indexes and chunks give rows or an error; they never panic, hang, or take much more memory than the rows.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, ListArray};
use arrow_schema::DataType;
use bytes::Bytes;
use stoker_fuzz::Target;

use super::{chunks_read, encoded, strategies};
use crate::{ChunksRead, ListPage, PageRows, gather_lists};

/// The most bytes that reading a page of some KiB holds: the levels of each chunk, and its rows.
const MEMORY_BYTES_MAX: usize = 16 << 20;

const NUM_ROWS: u64 = 40;

fn array() -> ArrayRef {
    let row =
        |row: usize| (row % 7 != 3).then(move || (0..row * 13 % 200).map(move |index| Some((index * 31 + row) as i32)));
    Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>((0..NUM_ROWS as usize).map(row)))
}

/// Reads all rows of a page from bytes, each part of which has its length before it.
fn read(page: &Arc<ListPage>, input: &[u8], data_type: &DataType) -> bool {
    let mut rest = input;
    let mut part = || {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let (part, after) = after.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
        rest = after;
        Some(part)
    };
    let (Some(sizes), Some(row_counts), Some(data)) = (part(), part(), part()) else { return false };
    let Ok(chunks) = page.chunk_index(sizes, row_counts) else { return false };
    let rows: Vec<u64> = (0..NUM_ROWS).collect();
    let data = Bytes::copy_from_slice(data);
    let start = page.data_range().start;
    let mut read = Vec::new();
    for numbers in chunks_read(&chunks, &rows) {
        let range = chunks.byte_range(numbers.clone());
        let (first, end) = ((range.start - start) as usize, (range.end - start) as usize);
        if end > data.len() {
            return false;
        }
        read.push(ChunksRead { numbers, bytes: data.slice(first..end) });
    }
    let read = PageRows { page: page.clone(), chunks: Arc::new(chunks), rows, read };
    match gather_lists(&[read], None, data_type, None) {
        Ok(lists) => {
            assert_eq!(lists.len() as u64, NUM_ROWS);
            true
        }
        Err(bad) => {
            assert!(!bad.reason.is_empty());
            false
        }
    }
}

#[test]
fn pages_of_lists() {
    let array = array();
    for (name, strategy) in ["lists-2.1", "lists-2.2"].into_iter().zip(strategies()) {
        let encoded = encoded(&array, strategy.as_ref(), &[], 4).unwrap();
        let page = &encoded.pages[0];
        let [sizes, row_counts] = page.index_ranges();
        let mut seed = Vec::new();
        for range in [sizes, row_counts, page.data_range()] {
            let part = encoded.part(range);
            seed.extend_from_slice(&(part.len() as u16).to_le_bytes());
            seed.extend_from_slice(&part);
        }
        assert!(read(page, &seed, array.data_type()), "the seed is a page");
        let target = Target::new(name).seeds([seed]).memory_bytes_max(MEMORY_BYTES_MAX);
        target.run(|input| read(page, input, array.data_type()));
    }
}
