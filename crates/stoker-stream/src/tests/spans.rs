//! Tests of light columns that are read for several units at once.

use stoker_batch::Slots;
use stoker_chunks::{ChunkScan, ChunkScanOptions};
use stoker_order::{StreamOrder, Visit};
use stoker_types::ReadOptions;

use super::bad_rows::damage;
use super::*;
use crate::found_rows::FoundRows;
use crate::read::{Reader, Rows, read_dense, read_light_rows, read_rows};
use crate::spans::Spans;
use crate::unit::rows_of_local_unit;
use crate::unit_clock::UnitClock;

async fn read(plan: &StreamPlan, scan: &ChunkScan, order: &StreamOrder, positions: &[u64]) -> Rows {
    let clock = UnitClock::start(scan.clock());
    let reader = Reader { plan: &plan.inner, scan, clock: &clock, blocks: None, is_first: false };
    let found = FoundRows::at(&plan.inner, order, positions.iter().copied()).await.expect("rows");
    read_light_rows(reader, found).await.expect("light columns")
}

#[test]
fn units_get_from_spans_what_they_would_read_themselves() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let scan = ChunkScan::new(ChunkScanOptions::default());
        for shuffle in [ShuffleMode::Block, ShuffleMode::Full, ShuffleMode::Sequential] {
            let plan = plan(&engine, ALL, shuffle).await;
            let order = plan.inner.orders.epoch(3);
            // Every third position, as one of three ranks has them, in units of 1 to 7 rows.
            let positions: Vec<u64> = (1..1_000).step_by(3).collect();
            let mut spans = Spans::of_rows(plan.clone(), scan.clone(), order.clone(), 20);
            let (mut start, mut num_known) = (0, 0);
            for length in (1..=7).cycle() {
                let unit = &positions[start..(start + length).min(positions.len())];
                if unit.is_empty() {
                    break;
                }
                let upcoming = || positions[start..].iter().copied();
                let mut known = spans.rows(unit, upcoming()).await;
                if known.is_none() {
                    while !spans.are_read() {
                        tokio::task::yield_now().await;
                    }
                    known = spans.rows(unit, upcoming()).await;
                }
                if let Some(known) = known {
                    let expected = read(&plan, &scan, &order, unit).await;
                    assert_eq!(
                        (&known.light, &known.addrs),
                        (&expected.light, &expected.addrs),
                        "{shuffle:?}, {start}"
                    );
                    num_known += 1;
                }
                start += unit.len();
            }
            // There are 84 units. A unit that lies in two spans is read on its own, which happens at each of the 16
            // boundaries at most.
            assert!(num_known >= 84 - 16, "{num_known} units");
        }
    });
}

#[test]
fn damaged_rows_are_found_where_the_rest_is_known() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        damage(&engine, &[0, 333, 334, 999]).await;
        let plan = plan(&engine, ALL, ShuffleMode::Full).await;
        let (order, scan) = (plan.inner.orders.epoch(0), ChunkScan::new(ChunkScanOptions::default()));
        let positions: Vec<u64> = (0..1_000).collect();
        let mut visits: Vec<Visit> = Vec::new();
        order.visits(positions.iter().copied(), &mut visits);
        let clock = UnitClock::start(scan.clock());
        let reader = Reader { plan: &plan.inner, scan: &scan, clock: &clock, blocks: None, is_first: false };
        let known = read(&plan, &scan, &order, &positions).await;
        let mut read = Vec::new();
        for known in [Some(known.slice(0..1_000)), None] {
            let memory = Slots::try_new(scan.pool(), 1_000, WIDTH).expect("memory");
            let slots = (0..1_000).map(|row| memory.claim(row).expect("a slot")).collect();
            let claims = vec![slots, Vec::new(), Vec::new()];
            let rows = match known {
                Some(known) => read_dense(reader, known, claims).await,
                None => {
                    let found = FoundRows::of(&plan.inner, &visits).await.expect("rows");
                    read_rows(reader, found, claims).await
                }
            };
            read.push((rows.expect("rows"), memory.freeze().expect("all rows")));
        }
        let [(known, known_bytes), (alone, alone_bytes)] = &read[..] else { unreachable!("two reads") };
        assert_eq!((&known.light, &known.addrs, &known.bad), (&alone.light, &alone.addrs, &alone.bad));
        assert_eq!((known.bad.len(), known_bytes == alone_bytes), (4, true));
        // The rows of a span are sliced as for a unit.
        let (from, bad) = (visits.iter().position(|visit| visit.ordinal == 333).expect("the row"), &known.bad);
        let part = known.slice(from..from + 1);
        assert_eq!((part.bad.len(), part.bad.get(&0)), (1, bad.get(&from)));
    });
}

#[test]
fn large_local_rows_come_with_their_light_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine_of(folder.path().to_str().expect("UTF-8"), 400, 65_536).await;
        for (shuffle, world_size) in [(ShuffleMode::Block, 1), (ShuffleMode::Full, 3), (ShuffleMode::Sequential, 2)] {
            let plan = plan(&engine, ALL, shuffle).await;
            let (order, scan) = (plan.inner.orders.epoch(0), ChunkScan::new(ChunkScanOptions::default()));
            assert!(Spans::new(plan.clone(), scan, order, rows_of_local_unit(&plan, 1)).are_used());
            let mut found = Vec::new();
            for rank in 0..world_size {
                let slice = slice(rank, world_size, BatchSize::PerRank(33), LastBatch::Pad);
                // Units have 64 rows, and the labels of 4,096 rows are read at a time.
                let options = ReadOptions { io_threads: 1, ..ReadOptions::default() };
                let mut stream = plan.open(&slice, &options).expect("a stream");
                while let Some(batch) = stream.next().await.expect("a batch") {
                    let ids = batch.data["id"].as_primitive::<Int64Type>().values();
                    let (names, tensors) =
                        (batch.data["name"].as_string::<i32>(), batch.data["x"].as_fixed_size_list());
                    for (row, id) in ids.iter().enumerate() {
                        assert_eq!(names.value(row), format!("row {id}"));
                        let tensor = tensors.value(row);
                        assert!(tensor.as_primitive::<UInt8Type>().values().iter().copied().eq(values(*id, 65_536)));
                    }
                    found.extend_from_slice(&ids[..batch.num_valid]);
                }
            }
            found.sort_unstable();
            assert_eq!(found, (0..400).collect::<Vec<_>>(), "{shuffle:?}");
        }
    });
}
