//! Tests of the entry in a file's metadata, and of reading checksums.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, LargeBinaryArray, ListArray, StringArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use futures::future::try_join_all;
use stoker_checksum::checksum;
use stoker_types::ErrorKind;

use super::{Checksums, row_checksums};
use crate::tests::data::{
    TestResult, addresses, append, latest, memory_lake, schema, small, table_name, tensor, tensor_bytes, test_lake,
};
use crate::{LakeStore, Table};

/// A table of 60 rows in fragments of at most 25.
async fn table(lake: &LakeStore) -> crate::Result<Table> {
    let (name, schema) = (table_name("t"), schema(&[tensor("x", DataType::UInt8, &[1_500])]));
    append(lake, &name, &schema, 0..60, small(25, 5_000)).await?;
    latest(lake, &name).await
}

async fn checksums(table: &Table, segment_rows: u64) -> Result<Checksums, Box<dyn std::error::Error>> {
    let mut checksums = table.find_checksums("x").await?.ok_or("the column has checksums")?;
    checksums.segment_rows = segment_rows;
    Ok(checksums)
}

#[tokio::test]
async fn segments_of_any_size_give_the_same() -> TestResult {
    let table = table(&memory_lake().await).await?;
    let expected = |address: &u64| {
        let (fragment, offset) = (address >> 32, address & 0xffff_ffff);
        let row = (fragment * 25 + offset) as usize;
        (offset < 25 && row < 60).then(|| checksum(&tensor_bytes(row, 1_500).collect::<Vec<_>>()))
    };
    let mut wanted: Vec<u64> = addresses(&table).into_iter().rev().collect();
    wanted.extend([3, 25, 9 << 32, u64::MAX, 3, 1 << 32 | 24, 2 << 32 | 10]);
    let sparse = vec![2 << 32 | 9, 0, 1 << 32 | 12, 20];
    for segment_rows in [1, 4, 7, 25, u64::MAX] {
        for wanted in [&sparse, &wanted, &wanted] {
            let found = checksums(&table, segment_rows).await?.load(wanted).await?;
            assert_eq!(found, wanted.iter().map(expected).collect::<Vec<_>>(), "{segment_rows}");
        }
    }
    assert!(checksums(&table, 4).await?.load(&[]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_many_ask_for_is_read_once() -> TestResult {
    let table = table(&memory_lake().await).await?;
    let all = addresses(&table);
    let mut num_inserted = 0;
    for (segment_rows, num_segments) in [(u64::MAX, 3), (4, 7 + 7 + 3)] {
        let checksums = checksums(&table, segment_rows).await?;
        try_join_all((0..20).map(|_| checksums.load(&all))).await?;
        num_inserted += num_segments;
        assert_eq!(checksums.segments.num_inserted(), num_inserted);
    }
    Ok(())
}

#[tokio::test]
async fn damaged_checksums_are_values_and_cut_ones_an_error() -> TestResult {
    let test = test_lake().await;
    let table = table(&test.lake).await?;
    let checksums = checksums(&table, 4).await?;
    let stored = checksums.load(&[0, 1, 2, 3, 4]).await?;
    assert!(stored.iter().all(Option::is_some));
    let place = &checksums.files[&0];
    let file = OpenOptions::new().write(true).open(format!("/{}", place.path))?;
    file.write_all_at(&[[0u8; 4], [0xff; 4]].concat(), place.offset + 4)?;
    assert_eq!(checksums.load(&[0, 1, 2, 3, 4]).await?, stored, "from memory");
    assert_eq!(checksums.reload(&[1]).await?, [None]);
    assert_eq!(checksums.load(&[0, 1, 2, 3, 4]).await?, [stored[0], None, Some(u32::MAX), stored[3], stored[4]]);
    assert_eq!(checksums.reload(&[0, 2, 3]).await?, [stored[0], Some(u32::MAX), stored[3]]);
    assert_eq!(checksums.reload(&[25, 26]).await?, [None, None], "no such row");
    file.set_len(place.offset)?;
    for error in [checksums.load(&[20]).await.map(|_| ()), checksums.reload(&[2]).await.map(|_| ())] {
        let error = error.expect_err("the file is cut");
        assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
        assert!(error.to_string().contains("of table t@1"), "{error}");
    }
    Ok(())
}

/// Returns structs of a file and its path.
fn media(files: &[Option<&[u8]>], valid: Vec<bool>) -> ArrayRef {
    let fields = vec![Field::new("bytes", DataType::LargeBinary, true), Field::new("path", DataType::Utf8, true)];
    let paths = StringArray::from_iter_values(files.iter().map(|file| format!("{}", file.map_or(0, <[u8]>::len))));
    let columns: Vec<ArrayRef> = vec![Arc::new(LargeBinaryArray::from_iter(files)), Arc::new(paths)];
    Arc::new(StructArray::new(fields.into(), columns, Some(valid.into())))
}

fn lists(items: ArrayRef, lengths: &[usize]) -> ArrayRef {
    let item = Arc::new(Field::new("item", items.data_type().clone(), true));
    Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(lengths.iter().copied()), items, None))
}

#[test]
fn lists_and_structs_of_files_have_checksums() {
    let files: Vec<Option<&[u8]>> = vec![Some(b"one"), None, Some(b""), Some(b"four"), Some(b"one")];
    let structs = media(&files, vec![true, true, true, false, true]);
    let sums = row_checksums(&structs).unwrap();
    assert_eq!((sums[3], sums[0]), (0, sums[4]));
    assert!(sums[0] != sums[1] && sums[1] != sums[2]);
    assert_eq!(row_checksums(&structs.slice(1, 3)).unwrap(), sums[1..4]);
    for items in [structs.clone(), Arc::new(LargeBinaryArray::from_iter(&files))] {
        let rows = lists(items.clone(), &[2, 0, 1, 2]);
        let sums = row_checksums(&rows).unwrap();
        assert!((0..4).all(|row| (0..row).all(|other| sums[row] != sums[other])), "{sums:?}");
        assert_eq!(row_checksums(&rows.slice(2, 2)).unwrap(), sums[2..]);
        let moved = lists(items, &[1, 1, 1, 2]);
        assert_ne!(row_checksums(&moved).unwrap()[..2], sums[..2], "values that move to another row are noticed");
    }
    assert_eq!(row_checksums(&lists(Arc::new(Int64Array::from(vec![1, 2])), &[1, 1])), None);
}
