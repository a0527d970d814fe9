//! Tests of ranks that want rows of the same blocks and whose streams are in one process.

use futures::future::join_all;
use stoker_chunks::{Group, Membership};
use stoker_types::Digest;

use super::*;
use crate::blocks::group;

pub(super) const NUM_ROWS: i64 = 2_000;
pub(super) const ROW_BYTES: usize = 3_000;
pub(super) const TABLE_BYTES: u64 = NUM_ROWS as u64 * ROW_BYTES as u64;

/// The bytes of a budget of 1 MiB that are set aside for shared blocks.
const SHARED_BYTES: u64 = (1 << 20) / 3 * 2;

/// Makes an engine over a lake that is not a local folder.
pub(super) async fn distant() -> Engine {
    engine_of("memory://", NUM_ROWS, ROW_BYTES).await
}

/// Adds all ranks to their group before the first of them reads. Otherwise the ranks that come first would read their
/// rows alone.
pub(super) fn assemble(plan: &StreamPlan, budget: &Resources, slices: &[Slice]) -> Vec<Membership> {
    let share = |slice: &Slice| {
        let (group, num_ranks) = group(plan, slice)?;
        Some(budget.share(group, slice.topology.rank, num_ranks))
    };
    slices.iter().filter_map(share).collect()
}

/// Opens the streams of all ranks of an epoch within one budget. Their batches have one row.
fn open(plan: &StreamPlan, budget: &Resources, world_size: u32) -> Vec<BatchStream> {
    let slice = |rank| slice(rank, world_size, BatchSize::PerRank(1), LastBatch::Uneven);
    let slices: Vec<Slice> = (0..world_size).map(slice).collect();
    let _ranks = assemble(plan, budget, &slices);
    let open = |slice: &Slice| plan.open_within(budget, slice, &ReadOptions::default()).expect("a stream");
    slices.iter().map(open).collect()
}

/// Returns the ids of the rest of a stream, and the bytes that it read. Checks the tensors.
pub(super) async fn rest(stream: &mut BatchStream) -> (Vec<i64>, u64) {
    let mut all = Vec::new();
    while let Some(batch) = stream.next().await.expect("a batch") {
        let ids = batch.data["id"].as_primitive::<Int64Type>();
        let tensors = batch.data["x"].as_fixed_size_list();
        for (row, id) in ids.values().iter().enumerate() {
            let bytes = tensors.value(row);
            assert!(bytes.as_primitive::<UInt8Type>().values().iter().copied().eq(values(*id, ROW_BYTES)));
        }
        all.extend(ids.values());
    }
    (all, stream.stats().bytes_read)
}

pub(super) fn sorted(ids: impl IntoIterator<Item = i64>) -> Vec<i64> {
    let mut ids: Vec<i64> = ids.into_iter().collect();
    ids.sort_unstable();
    ids
}

#[test]
fn ranks_that_share_blocks_read_each_of_them_once() {
    run(async {
        let engine = distant().await;
        for (sql, num_rows) in [(ALL, NUM_ROWS), ("SELECT x, id, name FROM t WHERE id % 3 != 1", 1_333)] {
            for (shuffle, version) in [(ShuffleMode::Block, 1), (ShuffleMode::Block, 2), (ShuffleMode::Sequential, 1)] {
                let plan = plan_of_version(&engine, sql, shuffle, version).await;
                // The streams have 12 lanes.
                for world_size in [7, 16, 64] {
                    let budget = Resources::new(16 << 20);
                    let mut streams = open(&plan, &budget, world_size);
                    let (ids, bytes): (Vec<_>, Vec<u64>) =
                        join_all(streams.iter_mut().map(rest)).await.into_iter().unzip();
                    let ids = sorted(ids.into_iter().flatten());
                    assert_eq!(ids.len() as i64, num_rows);
                    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "a row came twice");
                    let read: u64 = bytes.iter().sum();
                    // The first row of each rank is read alone, and rows between the selected ones are read along with
                    // them.
                    assert!(
                        read <= TABLE_BYTES * 11 / 10,
                        "{shuffle:?} {version}, {world_size} ranks: {read} of {TABLE_BYTES}"
                    );
                    drop(streams);
                }
            }
        }
    });
}

#[test]
fn first_batches_that_were_read_ahead_leave_the_blocks_to_the_streams_after_them() {
    run(async {
        let engine = distant().await;
        for (shuffle, version) in [(ShuffleMode::Block, 1), (ShuffleMode::Block, 2), (ShuffleMode::Sequential, 1)] {
            let plan = plan_of_version(&engine, ALL, shuffle, version).await;
            let budget = Resources::new(16 << 20);
            let slices: Vec<Slice> =
                (0..16).map(|rank| slice(rank, 16, BatchSize::PerRank(5), LastBatch::Uneven)).collect();
            let _ranks = assemble(&plan, &budget, &slices);
            let ahead = ReadOptions { ahead: true, ..ReadOptions::default() };
            let early = slices.iter().map(|slice| plan.open_within(&budget, slice, &ahead).expect("a stream"));
            let first = early.map(|mut stream| async move {
                let first = stream.next().await.expect("a batch").expect("not the end");
                (first.data["id"].as_primitive::<Int64Type>().values().to_vec(), stream.stats().bytes_read)
            });
            let first: Vec<(Vec<i64>, u64)> = join_all(first).await;
            let late = slices.iter().map(|slice| Slice { first_step: 1, ..*slice });
            let late = late.map(|slice| plan.open_within(&budget, &slice, &ReadOptions::default()).expect("a stream"));
            let mut late: Vec<BatchStream> = late.collect();
            let rest = join_all(late.iter_mut().map(rest)).await;
            let (ids, bytes): (Vec<_>, Vec<u64>) = first.into_iter().chain(rest).unzip();
            assert_eq!(sorted(ids.into_iter().flatten()), (0..NUM_ROWS).collect::<Vec<_>>());
            let read: u64 = bytes.iter().sum();
            assert!(read <= TABLE_BYTES * 11 / 10, "{shuffle:?} {version}: {read} of {TABLE_BYTES}");
        }
    });
}

#[test]
fn a_rank_that_lags_behind_stops_nobody_and_keeps_little() {
    run(async {
        let engine = distant().await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let budget = Resources::new(1 << 20);
        let mut streams = open(&plan, &budget, 16);
        let mut slow = streams.pop().expect("a stream");
        let first = slow.next().await.expect("a batch").expect("not the end");
        let fast = join_all(streams.iter_mut().map(rest)).await;
        assert!(budget.shared_bytes() <= SHARED_BYTES, "{} bytes are kept for the slow one", budget.shared_bytes());
        let (late, late_bytes) = rest(&mut slow).await;
        let first = first.data["id"].as_primitive::<Int64Type>().values().to_vec();
        let fast_ids = fast.iter().flat_map(|(ids, _)| ids.iter().copied());
        assert_eq!(sorted(fast_ids.chain(late).chain(first)), (0..NUM_ROWS).collect::<Vec<_>>());
        // The slow rank reads the evicted blocks for itself: its own rows, and the bytes between them.
        assert!(late_bytes < TABLE_BYTES / 16 * 4, "{late_bytes}");
        drop((streams, slow));
        assert_eq!(budget.memory().held_bytes(), 0);
    });
}

#[test]
fn a_stream_opened_ahead_does_not_ask_for_the_rows_of_a_large_batch_one_by_one() {
    run(async {
        let engine = distant().await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        // A sixteenth of the larger budget has memory for the window; a sixteenth of the smaller one does not.
        for (memory_budget_bytes, batch_rows, reads_ahead) in
            [(16 << 20, 1_024, true), (16 << 20, 1_025, false), (1 << 30, 1_025, true)]
        {
            let ahead = ReadOptions { ahead: true, memory_budget_bytes, ..ReadOptions::default() };
            let slice = slice(0, 1, BatchSize::PerRank(batch_rows), LastBatch::Uneven);
            let mut stream = plan.open_within(&Resources::default(), &slice, &ahead).expect("a stream");
            while reads_ahead && stream.stats().requests == 0 {
                tokio::task::yield_now().await;
            }
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(stream.stats().requests > 0, reads_ahead, "batches of {batch_rows} rows");
            stream.begin(1 << 30);
            let (ids, _) = rest(&mut stream).await;
            assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_stream_opened_ahead_takes_the_place_of_those_before_it_when_they_have_read_everything() {
    run(async {
        let engine = distant().await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(100), LastBatch::Uneven);
        let budget = Resources::default();
        let memory_budget_bytes = 16 << 20;
        let before = budget.memory().join(memory_budget_bytes);
        let held = before.reserve(memory_budget_bytes).await;
        let ahead = ReadOptions { ahead: true, memory_budget_bytes, ..ReadOptions::default() };
        let mut stream = plan.open_within(&budget, &slice, &ahead).expect("a stream");
        let first = stream.next().await.expect("a batch").expect("not the end");
        for let_go in [|_: &Quota| {}, Quota::retire] {
            let_go(&before);
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            assert!(stream.stats().bytes_read < TABLE_BYTES, "the other one holds all of its memory");
        }
        // Free budget alone would need new memory. The stream reads as soon as the pool also has free memory.
        drop(held);
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
        assert!(stream.stats().bytes_read < TABLE_BYTES, "there is no memory yet");
        drop(budget.memory().pool().take(7 << 20).expect("memory"));
        while stream.stats().bytes_read < TABLE_BYTES {
            tokio::task::yield_now().await;
        }
        assert!(budget.memory().held_bytes() <= memory_budget_bytes, "{} bytes", budget.memory().held_bytes());
        stream.begin(memory_budget_bytes);
        let (mut ids, _) = rest(&mut stream).await;
        ids.extend_from_slice(first.data["id"].as_primitive::<Int64Type>().values());
        assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>());
    });
}

#[test]
fn a_stream_opened_ahead_reads_the_windows_that_fit_unless_only_its_first_batch_is_wanted() {
    run(async {
        let engine = distant().await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(100), LastBatch::Uneven);
        for (memory_budget_bytes, first_batch_only, reads_all) in
            [(1 << 30, false, true), (1 << 30, true, false), (16 << 20, false, false)]
        {
            let ahead = ReadOptions { ahead: true, first_batch_only, memory_budget_bytes, ..ReadOptions::default() };
            let mut stream = plan.open_within(&Resources::default(), &slice, &ahead).expect("a stream");
            let first = stream.next().await.expect("a batch").expect("not the end");
            while reads_all && stream.stats().bytes_read < TABLE_BYTES {
                tokio::task::yield_now().await;
            }
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            assert_eq!(
                stream.stats().bytes_read >= TABLE_BYTES,
                reads_all,
                "{memory_budget_bytes}, {first_batch_only}"
            );
            stream.begin(1 << 30);
            let (mut ids, _) = rest(&mut stream).await;
            ids.extend_from_slice(first.data["id"].as_primitive::<Int64Type>().values());
            assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>());
        }
    });
}

#[test]
fn the_last_of_several_ranks_gives_back_what_was_kept() {
    let budget = Resources::new(1 << 20);
    let group = Group { stream: Digest::of(b"stream"), epoch: 0, residue: 0 };
    let ranks = [0, 1].map(|rank| (budget.share(group.clone(), rank, 2), budget.memory().join(u64::MAX)));
    assert_eq!(budget.memory().total_bytes(), (1 << 20) - SHARED_BYTES, "the rest is for what they share");
    budget.memory().pool().take(100_000).expect("memory").as_mut().fill(1);
    let is_kept = || budget.memory().pool().take(100_000).expect("memory").as_ref()[0] == 1;
    assert!(is_kept());
    drop(ranks);
    assert!(!is_kept(), "the next epoch may share blocks, but nobody is here");
}

#[test]
fn blocks_of_ranks_that_are_gone_give_way_to_another_stream() {
    let budget = Resources::new(1 << 20);
    let group = Group { stream: Digest::of(b"stream"), epoch: 0, residue: 0 };
    let join = |rank| (budget.share(group.clone(), rank, 2), budget.memory().join(u64::MAX));
    drop([0, 1].map(join));
    assert_eq!(budget.memory().total_bytes(), (1 << 20) - SHARED_BYTES, "they may come back");
    let other = budget.memory().join(u64::MAX);
    assert_eq!((other.bytes(), budget.memory().total_bytes()), (1 << 20, 1 << 20));
    let ranks = [0, 1].map(join);
    assert_eq!(budget.memory().total_bytes(), (1 << 20) - SHARED_BYTES, "they came back");
    drop(ranks);
    // The bytes are available again when the last rank has left, or when the other stream requests memory.
    drop(other.try_reserve(1));
    assert_eq!(budget.memory().total_bytes(), 1 << 20);
}

#[test]
fn ranks_that_share_nothing_leave_the_whole_budget_to_streams() {
    run(async {
        let engine = distant().await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let budget = Resources::new(1 << 20);
        // Twelve lanes can be divided among four ranks, but not among five.
        let four = open(&plan, &budget, 4);
        assert_eq!(budget.memory().total_bytes(), 1 << 20);
        drop(four);
        let five = open(&plan, &budget, 5);
        assert_eq!(budget.memory().total_bytes(), (1 << 20) - SHARED_BYTES, "the rest is for what they share");
        drop(five);
    });
}
