//! Tests of streams over object stores with a cache in a folder.

use std::fs;
use std::path::Path;

use futures::future::join_all;
use stoker_chunks::{CacheOptions, ChunkCache};
use stoker_types::{ReadOptions, StreamOptions, StreamStats};

use super::shared::{NUM_ROWS, ROW_BYTES, TABLE_BYTES, assemble, distant, rest, sorted};
use super::*;

/// Makes a budget with its own cache over the folder, as another process would.
async fn budget(folder: &Path, bytes_max: u64) -> Resources {
    let options = CacheOptions { dir: folder.to_path_buf(), bytes_max: Some(bytes_max) };
    let cache = ChunkCache::open(&options).await.expect("a cache");
    cache.settled().await;
    Resources::new(64 << 20).with_cache(Some(cache))
}

/// Plans a stream over the table of [`distant`]. Its blocks have two rows.
async fn plan_of(engine: &Engine, shuffle: ShuffleMode, order_version: u32) -> StreamPlan {
    let options = StreamOptions {
        seed: 7,
        shuffle,
        shuffle_window_bytes: Some(64 << 20),
        block_bytes: 2 * ROW_BYTES as u64 + 1_000,
        num_lanes: 12,
        order_version: Some(1),
        weight: None,
        pack: None,
        bucket: None,
    };
    let plan = StreamPlan::create(engine, ALL, &[], &options).await.expect("a plan");
    of_version(engine, plan, order_version).await
}

/// Opens the streams of all ranks of an epoch. Their batches have one row.
fn open(plan: &StreamPlan, budget: &Resources, epoch: u64, world_size: u32) -> Vec<BatchStream> {
    let slice = |rank| Slice { epoch, ..slice(rank, world_size, BatchSize::PerRank(1), LastBatch::Uneven) };
    let slices: Vec<Slice> = (0..world_size).map(slice).collect();
    let _ranks = assemble(plan, budget, &slices);
    let open = |slice: &Slice| plan.open_within(budget, slice, &ReadOptions::default()).expect("a stream");
    slices.iter().map(open).collect()
}

/// Returns the ids that all ranks of an epoch got, and the sums of their statistics, once the cache has been written.
async fn epoch(plan: &StreamPlan, budget: &Resources, epoch: u64, world_size: u32) -> (Vec<i64>, StreamStats) {
    let mut streams = open(plan, budget, epoch, world_size);
    let ids = join_all(streams.iter_mut().map(rest)).await.into_iter().flat_map(|(ids, _)| ids).collect();
    let mut sum = StreamStats::default();
    for stats in streams.iter().map(BatchStream::stats) {
        sum.requests += stats.requests;
        sum.bytes_read += stats.bytes_read;
        sum.cache_hit_bytes += stats.cache_hit_bytes;
        sum.cache_miss_bytes += stats.cache_miss_bytes;
        sum.cache_damaged += stats.cache_damaged;
    }
    if let Some(cache) = budget.cache() {
        cache.settled().await;
    }
    (ids, sum)
}

/// Returns the bytes of all files in a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    entries.map(|path| if path.is_dir() { size(&path) } else { path.metadata().expect("metadata").len() }).sum()
}

#[test]
fn epochs_ranks_and_processes_after_the_first_read_nothing() {
    run(async {
        let engine = distant().await;
        for (shuffle, version) in [(ShuffleMode::Block, 1), (ShuffleMode::Block, 2), (ShuffleMode::Sequential, 1)] {
            let folder = tempfile::tempdir().expect("a folder");
            let plan = plan_of(&engine, shuffle, version).await;
            assert_eq!(plan.spec().sources[0].order.rows_per_block, 2);
            let plain = Resources::new(64 << 20);
            let first = budget(folder.path(), 1 << 30).await;
            let (ids, stats) = epoch(&plan, &first, 0, 1).await;
            let (expected, plain_stats) = epoch(&plan, &plain, 0, 1).await;
            assert_eq!(ids, expected);
            assert!((TABLE_BYTES..=TABLE_BYTES * 11 / 10).contains(&stats.bytes_read), "{stats:?}");
            assert!(stats.requests <= plain_stats.requests + 10, "{stats:?}, without: {plain_stats:?}");
            // The same process and others open the same folder. 3 and 4 ranks share no blocks, 7 and 16 do.
            for (number, world_size) in [(1, 1), (2, 1), (1, 3), (1, 4), (3, 7), (1, 16)] {
                let other = budget(folder.path(), 1 << 30).await;
                let budget = if number == 1 { &first } else { &other };
                let (ids, stats) = epoch(&plan, budget, number, world_size).await;
                assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>(), "{world_size} ranks");
                assert_eq!(
                    (stats.requests, stats.bytes_read),
                    (0, 0),
                    "{shuffle:?} {version}, {world_size} ranks: {stats:?}"
                );
                assert!(stats.cache_hit_bytes >= TABLE_BYTES, "{stats:?}");
            }
        }
    });
}

#[test]
fn ranks_that_share_blocks_fill_the_cache() {
    run(async {
        let (engine, folder) = (distant().await, tempfile::tempdir().expect("a folder"));
        let plan = plan_of(&engine, ShuffleMode::Block, 1).await;
        let budget = budget(folder.path(), 1 << 30).await;
        let (ids, first) = epoch(&plan, &budget, 0, 16).await;
        assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>());
        assert!(first.bytes_read <= TABLE_BYTES * 11 / 10, "{first:?}");
        let (_, second) = epoch(&plan, &budget, 1, 16).await;
        // Blocks of which only a first row was wanted were not read as a whole.
        assert!(second.bytes_read <= 16 * 2 * ROW_BYTES as u64, "{second:?}");
    });
}

#[test]
fn a_full_folder_serves_as_much_as_it_holds() {
    run(async {
        let (engine, folder) = (distant().await, tempfile::tempdir().expect("a folder"));
        let plan = plan_of(&engine, ShuffleMode::Block, 1).await;
        let bytes_max = TABLE_BYTES / 3;
        let budget = budget(folder.path(), bytes_max).await;
        let mut hits = 0;
        for number in 0..4 {
            let (ids, stats) = epoch(&plan, &budget, number, 1).await;
            assert_eq!(sorted(ids), (0..NUM_ROWS).collect::<Vec<_>>());
            assert!(size(folder.path()) <= bytes_max, "{}", size(folder.path()));
            // The block of the first row may be read from the cache twice.
            assert!(stats.cache_hit_bytes + 3 * ROW_BYTES as u64 >= hits, "epoch {number}: {stats:?}");
            assert!(stats.cache_hit_bytes + stats.bytes_read <= TABLE_BYTES * 11 / 10, "{stats:?}");
            hits = stats.cache_hit_bytes;
        }
        assert!(hits >= bytes_max * 9 / 10, "{hits} of {bytes_max}");
    });
}

#[test]
fn local_lakes_are_not_kept() {
    let (lake, folder) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    run(async {
        let engine = engine_of(lake.path().to_str().expect("UTF-8"), NUM_ROWS, ROW_BYTES).await;
        let plan = plan_of(&engine, ShuffleMode::Block, 1).await;
        let budget = budget(folder.path(), 1 << 30).await;
        let (_, stats) = epoch(&plan, &budget, 0, 1).await;
        assert_eq!((stats.cache_hit_bytes, stats.cache_miss_bytes, size(folder.path())), (0, 0, 0));
    });
}

#[test]
fn an_order_without_blocks_keeps_large_rows_one_by_one() {
    run(async {
        for (num_rows, width) in [(40, 70_000), (400, 2_000)] {
            let (engine, folder) =
                (engine_of("memory://", num_rows, width).await, tempfile::tempdir().expect("a folder"));
            let plan = plan_of(&engine, ShuffleMode::Full, 1).await;
            let budget = budget(folder.path(), 1 << 30).await;
            let mut last = StreamStats::default();
            for number in 0..3 {
                let mut stream = open(&plan, &budget, number, 1).remove(0);
                while let Some(batch) = stream.next().await.expect("a batch") {
                    let id = batch.data["id"].as_primitive::<Int64Type>().value(0);
                    let tensor = batch.data["x"].as_fixed_size_list().value(0);
                    assert!(tensor.as_primitive::<UInt8Type>().values().iter().copied().eq(values(id, width)));
                }
                budget.cache().expect("a cache").settled().await;
                last = stream.stats();
            }
            let table = num_rows as u64 * width as u64;
            match width {
                70_000 => assert_eq!((last.bytes_read, last.cache_hit_bytes), (0, table)),
                _ => assert_eq!((last.cache_hit_bytes, last.cache_miss_bytes), (0, 0), "small rows are as many files"),
            }
        }
    });
}
