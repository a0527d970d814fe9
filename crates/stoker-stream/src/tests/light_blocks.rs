//! Tests of narrow light columns that are read in blocks.

use stoker_chunks::{ChunkScan, ChunkScanOptions};

use super::*;
use crate::light::read_tables;
use crate::source::SourcePlan;
use crate::unit_clock::UnitClock;

/// Returns the ids at some ordinals, by blocks. `None` if the rows have to be read alone.
async fn ids_of(source: &SourcePlan, scan: &ChunkScan, ordinals: &[u64], is_first: bool) -> Option<Vec<i64>> {
    let clock = UnitClock::start(scan.clock());
    let read = source.light.read(source, scan, &clock, ordinals, is_first).await.expect("values")?;
    let [(_, ids)] = read.as_slice() else { panic!("one column of one width") };
    Some(ids.as_primitive::<Int64Type>().values().to_vec())
}

/// Returns the same ids, read row by row.
async fn ids_alone(source: &SourcePlan, scan: &ChunkScan, ordinals: &[u64]) -> Vec<i64> {
    let clock = UnitClock::start(scan.clock());
    let rows = source.row_set.resolve(ordinals).await.expect("rows");
    let mut bad = Default::default();
    let read = read_tables(source, scan, &clock, &[0], &rows.addrs, &mut bad).await.expect("values");
    read[0].as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn rows_have_the_values_that_they_have_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        let plan = plan(&engine, "SELECT id, name, x FROM t WHERE id % 7 > 0", ShuffleMode::Block).await;
        let source = &plan.inner.sources[0];
        let num_rows = plan.num_rows();
        assert_eq!(num_rows, 8_571);
        let cases: [Vec<u64>; 5] = [
            vec![4_095],
            (4_000..4_200).collect(),
            (0..num_rows).step_by(613).collect(),
            (8_192..num_rows).collect(),
            (0..num_rows).collect(),
        ];
        for ordinals in cases {
            let by_blocks = ids_of(source, &scan, &ordinals, false).await;
            assert_eq!(by_blocks, Some(ids_alone(source, &scan, &ordinals).await));
        }
        assert_eq!(ids_of(source, &scan, &[], false).await, None, "a rank may have no rows");
        assert_eq!(ids_of(source, &scan, &[5, 4_096, 6], false).await, None, "ordinals that do not ascend");
    });
}

#[test]
fn first_batches_read_few_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let source = &plan.inner.sources[0];
        let scattered = [1, 5_000, 9_000];
        assert_eq!(ids_of(source, &scan, &scattered, true).await, None);
        assert_eq!(ids_of(source, &scan, &scattered[..2], true).await, Some(vec![1, 5_000]));
        // Two of the three blocks are there now.
        assert_eq!(ids_of(source, &scan, &scattered, true).await, Some(vec![1, 5_000, 9_000]));
    });
}

#[test]
fn only_narrow_columns_of_tables_are_read_in_blocks() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 100).await;
        let is_kept = async |sql: &str| {
            let plan = plan(&engine, sql, ShuffleMode::Block).await;
            let num_columns = plan.inner.columns().len();
            (0..num_columns).map(|column| plan.inner.sources[0].light.has(column)).collect::<Vec<_>>()
        };
        assert_eq!(is_kept("SELECT id, name, x FROM t").await, [true, false, false]);
        assert_eq!(is_kept("SELECT x, name FROM t").await, [false, false]);
        // The values of an expression are in the row set.
        assert_eq!(is_kept("SELECT id, id * 2 AS twice FROM t").await, [false, false]);
    });
}

#[test]
fn blocks_are_kept_while_a_stream_of_the_plan_is_open() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        for (shuffle, version) in ORDERS {
            let plan = plan_of_version(&engine, ALL, shuffle, version).await;
            let source = &plan.inner.sources[0];
            let all = [1, 5_000, 9_000];
            let open =
                |rank| plan.open(&slice(rank, 2, BatchSize::Global(96), LastBatch::Pad), &ReadOptions::default());
            let (mut one, other) = (open(0).expect("a stream"), open(1).expect("a stream"));
            while one.next().await.expect("a batch").is_some() {}
            // A first batch reads no more than two blocks, so the others were there.
            assert!(ids_of(source, &scan, &all, true).await.is_some(), "{shuffle:?}");
            drop(one);
            assert!(ids_of(source, &scan, &all, true).await.is_some(), "{shuffle:?}");
            drop(other);
            assert_eq!(ids_of(source, &scan, &all, true).await, None, "{shuffle:?}");
        }
    });
}
