//! Tests of rows that are resident before they are due.

use stoker_chunks::LocalReads;
use stoker_order::StreamOrders;
use stoker_types::IoTotals;

use super::*;

/// Makes a plan over 10,000 rows with several super-strides for each block. The table is larger than what the delay line
/// holds.
async fn line_plan(engine: &Engine, sql: &str, held_rows: u64, num_lanes: u32) -> StreamPlan {
    let options = StreamOptions {
        seed: 3,
        shuffle_window_bytes: Some(held_rows * WIDTH as u64),
        block_bytes: 9 * WIDTH as u64,
        num_lanes,
        order_version: Some(2),
        ..StreamOptions::default()
    };
    let plan = StreamPlan::create(engine, sql, &[], &options).await.expect("a plan");
    let order = &plan.spec().sources[0].order;
    assert!(order.version() == 2 && order.rows_per_block > 1, "{order}");
    plan
}

/// Blocks are read from the page cache, or past it. (`local_reads.rs` has large rows, which stay in the page cache.)
const PLACES: [LocalReads; 2] = [LocalReads::Buffered, LocalReads::Direct];

/// Returns the rows of each rank from an origin on, joined by position.
async fn joined(
    plan: &StreamPlan,
    world_size: u32,
    origin: u64,
    (options, reads): (&ReadOptions, LocalReads),
) -> (Vec<i64>, IoTotals) {
    let resources = Resources::default().with_local_reads(reads);
    let mut rows: BTreeMap<u64, i64> = BTreeMap::new();
    let mut io = IoTotals::default();
    for rank in 0..world_size {
        let slice = Slice { origin, ..slice(rank, world_size, BatchSize::Global(96), LastBatch::Pad) };
        let mut stream = plan.open_within(&resources, &slice, options).expect("a stream");
        while let Some(batch) = stream.next().await.expect("a batch") {
            let share = slice.share(batch.step, plan.num_rows());
            let ids = batch.data["id"].as_primitive::<Int64Type>().values();
            let (names, tensors) = (batch.data["name"].as_string::<i32>(), batch.data["x"].as_fixed_size_list());
            assert_eq!(ids.len() as u64, share.num_rows);
            for (row, id) in ids.iter().enumerate() {
                assert_eq!(names.value(row), format!("row {id}"));
                assert_eq!(tensors.value(row).as_primitive::<UInt8Type>().values().to_vec(), tensor(*id));
                assert_eq!(batch.row_addrs[0][row], (((id / 450) as u64) << 32) | (id % 450) as u64);
                let before = rows.insert(share.position(row as u64), *id);
                assert!(before.is_none_or(|before| before == *id), "position of row {id}");
            }
        }
        io.bytes_read += stream.stats().bytes_read;
        io.requests += stream.stats().requests;
    }
    assert!(rows.keys().copied().eq(origin..plan.num_rows()));
    (rows.into_values().collect(), io)
}

/// Returns the ids at the positions from `origin` on, by the order alone. `ids` has the id of each ordinal.
fn expected(plan: &StreamPlan, origin: u64, id: impl Fn(u64) -> i64) -> Vec<i64> {
    let order = StreamOrders::new(plan.spec()).epoch(0);
    (origin..plan.num_rows()).map(|position| id(order.visit(position).ordinal)).collect()
}

#[test]
fn rows_come_in_the_order_of_the_delay_line_and_are_read_once() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let line = line_plan(&engine, ALL, 4_000, 12).await;
        // 12 lanes: the lanes of 5 and 8 ranks are shared.
        for (reads, world_size) in PLACES.into_iter().flat_map(|reads| [1, 3, 5, 8].map(|world| (reads, world))) {
            for origin in [0, 1, 96, 4_321, 9_990] {
                let options = (&ReadOptions::default(), reads);
                let (rows, IoTotals { bytes_read, .. }) = joined(&line, world_size, origin, options).await;
                assert_eq!(rows, expected(&line, origin, |ordinal| ordinal as i64), "{world_size} from {origin} on");
                // The rows of the first batches are read alone. Ranks that share lanes read the rows between theirs.
                // Direct reads read across gaps, up to twice the bytes.
                let more = if 12 % world_size == 0 { 11 } else { 20 };
                let more = if reads == LocalReads::Direct { more * 2 } else { more };
                let bytes_max = (10_000 - origin) * WIDTH as u64 * more / 10 + 400 * WIDTH as u64;
                assert!(bytes_read <= bytes_max, "{bytes_read} of {bytes_max}, {world_size} from {origin} on");
            }
        }
        // The row set has gaps, one lane, and blocks that the lanes share.
        let sparse = line_plan(&engine, "SELECT x, id, name FROM t WHERE id % 7 IN (1, 2, 5)", 2_400, 1).await;
        let ids: Vec<i64> = (0..10_000).filter(|id| [1, 2, 5].contains(&(id % 7))).collect();
        for (reads, origin) in PLACES.into_iter().flat_map(|reads| [0, 1_000].map(|origin| (reads, origin))) {
            let (rows, _) = joined(&sparse, 2, origin, (&ReadOptions::default(), reads)).await;
            assert_eq!(rows, expected(&sparse, origin, |ordinal| ids[ordinal as usize]));
        }
    });
}

#[test]
fn rows_that_memory_does_not_hold_are_read_when_they_are_due() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let plan = line_plan(&engine, ALL, 4_000, 12).await;
        let wanted = expected(&plan, 0, |ordinal| ordinal as i64);
        let (_, whole) = joined(&plan, 1, 0, (&ReadOptions::default(), LocalReads::Direct)).await;
        // From no resident rows to some of them.
        for memory_budget_bytes in [1, 2 << 20] {
            let options = ReadOptions { memory_budget_bytes, ..ReadOptions::default() };
            let (rows, io) = joined(&plan, 1, 0, (&options, LocalReads::Direct)).await;
            assert_eq!(rows, wanted, "{memory_budget_bytes}");
            assert!(io.requests > whole.requests, "{io:?} with {memory_budget_bytes}, {whole:?} with all memory");
        }
    });
}

#[test]
fn no_rows_are_read_ahead_in_the_place_of_rows_that_are_due_sooner() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let plan = line_plan(&engine, ALL, 4_000, 12).await;
        let (_, whole) = joined(&plan, 1, 0, (&ReadOptions::default(), LocalReads::Direct)).await;
        // Three quarters of the bytes are for resident rows: those of the delay line, whose groups are as large as an
        // arrival here, and released with their last row.
        let memory_budget_bytes = 9_200 * plan.row_bytes() / 3 * 4;
        let options = ReadOptions { memory_budget_bytes, ..ReadOptions::default() };
        let (rows, io) = joined(&plan, 1, 0, (&options, LocalReads::Direct)).await;
        assert_eq!(rows, expected(&plan, 0, |ordinal| ordinal as i64));
        assert!(
            io.requests <= whole.requests * 5 / 4,
            "{io:?} with memory for the line only, {whole:?} with all memory"
        );
    });
}

#[test]
fn resident_rows_are_released_with_the_last_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 10_000).await;
        let plan = line_plan(&engine, ALL, 4_000, 12).await;
        let resources = Resources::default().with_local_reads(LocalReads::Direct);
        let slice = slice(0, 1, BatchSize::PerRank(100), LastBatch::Uneven);
        let mut stream = plan.open_within(&resources, &slice, &ReadOptions::default()).expect("a stream");
        let mut held_max = 0;
        while stream.next().await.expect("a batch").is_some() {
            // The stream reads on between two looks, as far as it may.
            for look in 0.. {
                let held_bytes = resources.memory().held_bytes();
                let [open] = &resources.open_streams()[..] else { unreachable!("one stream is open") };
                if open.held_bytes >= held_bytes || stream.is_read() {
                    break;
                }
                assert!(look < 10_000_000, "{} bytes of {held_bytes} are listed", open.held_bytes);
                tokio::task::yield_now().await;
            }
            held_max = held_max.max(resources.memory().held_bytes());
        }
        assert!(held_max > 2_000 * plan.row_bytes(), "{held_max} bytes: no row was resident");
        assert_eq!(resources.memory().held_bytes(), 0);
        // A stream that is dropped early releases its memory, too.
        let mut stream = plan.open_within(&resources, &slice, &ReadOptions::default()).expect("a stream");
        stream.next().await.expect("a batch");
        drop(stream);
        while resources.memory().held_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    });
}
