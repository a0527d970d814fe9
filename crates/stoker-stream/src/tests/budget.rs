//! Tests of streams that share one budget.

use stoker_types::ReadOptions;

use super::*;

const BATCH_ROWS: u64 = 10;

/// Opens a rank's stream within a budget.
fn open(plan: &StreamPlan, budget: &Resources, rank: u32, world_size: u32) -> BatchStream {
    let slice = slice(rank, world_size, BatchSize::PerRank(BATCH_ROWS), LastBatch::Uneven);
    plan.open_within(budget, &slice, &ReadOptions::default()).expect("a stream")
}

/// Returns the ids of the rest of a stream, and the most bytes that all streams of its budget held in the meantime.
async fn rest(mut stream: BatchStream, budget: Resources) -> (Vec<i64>, u64) {
    let (mut ids, mut held_max) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await.expect("a batch") {
        held_max = held_max.max(budget.memory().held_bytes());
        ids.extend_from_slice(batch.data["id"].as_primitive::<Int64Type>().values());
    }
    (ids, held_max)
}

#[test]
fn many_streams_finish_within_a_small_budget() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let world_size = 24;
        for (shuffle, version) in [(ShuffleMode::Block, 1), (ShuffleMode::Block, 2), (ShuffleMode::Full, 1)] {
            let plan = plan_of_version(&engine, ALL, shuffle, version).await;
            // The totals range from less than a row to a few batches of each stream.
            for total in [1, 30 << 10, 600 << 10] {
                let budget = Resources::new(total);
                let streams: Vec<_> = (0..world_size).map(|rank| open(&plan, &budget, rank, world_size)).collect();
                let tasks: Vec<_> =
                    streams.into_iter().map(|stream| tokio::spawn(rest(stream, budget.clone()))).collect();
                let mut found = Vec::new();
                let bound = total + u64::from(world_size) * BATCH_ROWS * plan.row_bytes();
                for task in tasks {
                    let (ids, held_max) = task.await.expect("no panic");
                    assert!(held_max <= bound, "{held_max} bytes of {total}");
                    found.extend(ids);
                }
                found.sort_unstable();
                assert_eq!(found, (0..1_000).collect::<Vec<_>>());
                assert_eq!(budget.memory().held_bytes(), 0);
            }
        }
    });
}

#[test]
fn a_stream_opened_ahead_reads_little_until_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let budget = Resources::default();
        let slice = slice(0, 1, BatchSize::PerRank(50), LastBatch::Uneven);
        let little = ReadOptions { memory_budget_bytes: 1, ..ReadOptions::default() };
        let mut stream = plan.open_within(&budget, &slice, &little).expect("a stream");
        while budget.memory().held_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
            assert!(budget.memory().held_bytes() <= 50 * plan.row_bytes(), "{} bytes", budget.memory().held_bytes());
        }
        assert!(!stream.is_read());
        stream.begin(1 << 30);
        let first = stream.next().await.expect("a batch").expect("not the end");
        while !stream.is_read() {
            tokio::task::yield_now().await;
        }
        let mut ids = first.data["id"].as_primitive::<Int64Type>().values().to_vec();
        ids.extend(rest(stream, budget).await.0);
        ids.sort_unstable();
        assert_eq!(ids, (0..1_000).collect::<Vec<_>>());
    });
}

#[test]
fn streams_that_nobody_takes_from_do_not_block_the_others() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 1_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        let budget = Resources::new(60 << 10);
        // The idle streams are alone at first and may take the whole budget.
        let mut idle: Vec<BatchStream> = (0..3).map(|rank| open(&plan, &budget, rank, 5)).collect();
        let mut found = Vec::new();
        for stream in &mut idle {
            let batch = stream.next().await.expect("a batch").expect("not the end");
            found.extend_from_slice(batch.data["id"].as_primitive::<Int64Type>().values());
        }
        let quick = (3..5).map(|rank| rest(open(&plan, &budget, rank, 5), budget.clone()));
        for (ids, _) in futures::future::join_all(quick).await {
            found.extend(ids);
        }
        // The idle streams are read one after the other, so that each continues while the later ones are still idle.
        for stream in idle {
            found.extend(rest(stream, budget.clone()).await.0);
        }
        found.sort_unstable();
        assert_eq!(found, (0..1_000).collect::<Vec<_>>());
    });
}
