//! Tests of rows that come as often as their weights say.

use std::collections::HashMap;

use stoker_chunks::{CacheOptions, ChunkCache, LocalReads};
use stoker_types::{ErrorKind, MixOptions, MixtureStop, PlanRequest, Query, RunId};

use super::shared::{ROW_BYTES, distant, rest, sorted};
use super::*;

/// The weights by `id % 5`, as SQL and as numbers.
const WEIGHTED: &str = "SELECT x, id, name, CAST(id % 5 AS DOUBLE) * 0.75 AS w FROM t";

fn weight(id: i64) -> f64 {
    f64::from((id % 5) as f32 * 0.75)
}

fn options(shuffle: ShuffleMode, order_version: u32) -> StreamOptions {
    StreamOptions {
        seed: 7,
        shuffle,
        shuffle_window_bytes: Some(800 << 10),
        block_bytes: 20 << 10,
        num_lanes: 12,
        order_version: Some(order_version),
        weight: Some("w".into()),
        pack: None,
        bucket: None,
    }
}

async fn weighted(engine: &Engine, sql: &str, options: &StreamOptions) -> StreamPlan {
    let plan = StreamPlan::create(engine, sql, &[], options).await.expect("a plan");
    of_version(engine, plan, options.order_version.expect("a version")).await
}

/// Checks that each id comes as often as its weight, rounded up or down.
fn check_times(ids: &[i64], num_rows: i64) {
    let mut times: HashMap<i64, u64> = HashMap::new();
    ids.iter().for_each(|id| *times.entry(*id).or_default() += 1);
    for id in 0..num_rows {
        let (times, weight) = (times.get(&id).copied().unwrap_or(0) as f64, weight(id));
        assert!(weight.floor() <= times && times <= weight.ceil(), "row {id} comes {times} times, not {weight}");
    }
    assert_eq!(ids.len() as i64, (num_rows as f64 * 1.5) as i64);
}

#[test]
fn rows_come_as_often_as_they_weigh_in_all_orders_and_worlds() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 3_000).await;
        for (shuffle, version) in ORDERS {
            let plan = weighted(&engine, WEIGHTED, &options(shuffle, version)).await;
            assert_eq!((plan.num_rows(), plan.spec().sources[0].row_set_rows()), (4_500, 3_000));
            let epoch = async |world_size: u32, epoch: u64| {
                let mut rows = Vec::new();
                for rank in 0..world_size {
                    let slice = Slice { epoch, ..slice(rank, world_size, BatchSize::Global(96), LastBatch::Uneven) };
                    rows.extend(ids(&plan, slice, slice.num_steps(plan.num_rows())).await.concat());
                }
                rows
            };
            let first = epoch(1, 0).await;
            check_times(&first, 3_000);
            for world_size in [3, 5] {
                assert_eq!(sorted(epoch(world_size, 0).await), sorted(first.clone()), "{shuffle:?} {version}");
            }
            let second = epoch(1, 1).await;
            check_times(&second, 3_000);
            assert_ne!(sorted(second), sorted(first), "each epoch draws its own copies");
        }
    });
}

#[test]
fn blocks_of_caches_and_of_several_ranks_have_all_copies() {
    run(async {
        let engine = distant().await;
        for (shuffle, version) in ORDERS {
            let plan = weighted(&engine, WEIGHTED, &options(shuffle, version)).await;
            let folder = tempfile::tempdir().expect("a folder");
            let cache = CacheOptions { dir: folder.path().to_path_buf(), bytes_max: None };
            let cache = ChunkCache::open(&cache).await.expect("a cache");
            for resources in [
                Resources::new(64 << 20),
                Resources::new(64 << 20).with_cache(Some(cache)),
                Resources::new(64 << 20).with_local_reads(LocalReads::Direct),
            ] {
                let mut all = Vec::new();
                for rank in 0..5 {
                    let slice = slice(rank, 5, BatchSize::PerRank(40), LastBatch::Uneven);
                    let mut stream = plan.open_within(&resources, &slice, &ReadOptions::default()).expect("a stream");
                    all.extend(rest(&mut stream).await.0);
                }
                check_times(&all, 2_000);
            }
        }
        assert_eq!(ROW_BYTES, 3_000);
    });
}

#[test]
fn receipts_prove_weighted_epochs() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 500).await;
        let plan = weighted(&engine, WEIGHTED, &options(ShuffleMode::Block, 2)).await;
        let mut receipts = Vec::new();
        for rank in 0..3 {
            let slice = slice(rank, 3, BatchSize::PerRank(16), LastBatch::Uneven);
            receipts.push(receipt(&plan, slice, slice.num_steps(plan.num_rows())).await);
        }
        let verdicts = plan.verify(&receipts).await.expect("verdicts");
        assert!(verdicts.len() == 1 && verdicts[0].num_rows == 750 && verdicts[0].wrong.is_empty());
        assert_eq!((verdicts[0].missing.count, verdicts[0].repeated.count), (0, 0));
        receipts[0].parts[0].sum ^= 1;
        assert!(!plan.verify(&receipts).await.expect("verdicts")[0].wrong.is_empty(), "another sum");
    });
}

#[test]
fn weights_of_all_types_of_numbers_are_read_and_others_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 500).await;
        let plan = async |expression: &str| {
            let sql = format!("SELECT x, id, name, {expression} AS w FROM t");
            StreamPlan::create(&engine, &sql, &[], &options(ShuffleMode::Block, 1)).await
        };
        for (expression, num_rows) in [
            ("id % 2", 250),
            ("id", 124_750),
            ("id % 2 = 0", 250),
            ("CAST(0.5 AS DOUBLE)", 250),
            ("CAST(1.25 AS FLOAT)", 625),
            ("CAST(2 AS TINYINT UNSIGNED)", 1_000),
            ("arrow_cast(0.5, 'Float16')", 250),
            ("CAST(0.1 AS DECIMAL(4, 2))", 50),
        ] {
            let plan = plan(expression).await.unwrap_or_else(|error| panic!("{expression}: {error}"));
            assert_eq!(plan.num_rows(), num_rows, "{expression}");
        }
        for (expression, parts) in [
            ("name", &["\"w\"", "it is Utf8", "weights are numbers"][..]),
            ("nullif(id, 3)", &["row 0x3 of t", "NULL", "numbers from 0 to 16777216"]),
            ("CASE WHEN id = 499 THEN -1 ELSE 1 END", &["row 0x100000031 of t", "-1", "numbers from 0"]),
            ("CASE WHEN id = 7 THEN CAST('NaN' AS DOUBLE) ELSE 1 END", &["row 0x7 of t", "NaN"]),
            ("1e12", &["row 0x0 of t", "add up to less than 2^40"]),
            ("CAST(0 AS INT)", &["the weights of 500 rows add up to 0", "multiply them"]),
        ] {
            let error = plan(expression).await.map(|plan| plan.num_rows()).expect_err(expression);
            let text = error.to_string();
            assert!(
                error.kind() == ErrorKind::InvalidRequest && parts.iter().all(|part| text.contains(part)),
                "{text}"
            );
        }
        let other = StreamOptions { weight: Some("v".into()), ..options(ShuffleMode::Block, 1) };
        let error =
            StreamPlan::create(&engine, ALL, &[], &other).await.map(|plan| plan.num_rows()).expect_err("no column");
        assert!(error.to_string().contains("no such column; it has x, id, name"), "{error}");
        let (none, options) = ("SELECT x, id, name, id AS w FROM t WHERE id < 0", options(ShuffleMode::Block, 1));
        let none = StreamPlan::create(&engine, none, &[], &options);
        assert_eq!(none.await.expect("an empty stream").num_rows(), 0);
    });
}

#[test]
fn runs_and_states_pin_the_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 500).await;
        let options = options(ShuffleMode::Block, 1);
        let run_id = Some(RunId::try_new("exp").expect("a name"));
        let request = |options: &StreamOptions| PlanRequest {
            run_id: run_id.clone(),
            ..PlanRequest::new(Query::new(WEIGHTED, &[]), options.clone())
        };
        let plan = StreamPlan::plan(&engine, &request(&options)).await.expect("a run");
        let again = StreamPlan::plan(&engine, &request(&options)).await.expect("the same run");
        assert_eq!(again.stream_id(), plan.stream_id());
        for weight in [None, Some("id".to_string())] {
            let other = StreamOptions { weight, ..options.clone() };
            let error = StreamPlan::plan(&engine, &request(&other)).await.map(|_| ()).expect_err("another weight");
            assert!(
                error.kind() == ErrorKind::StateMismatch && error.to_string().contains("weight: the run has w"),
                "{error}"
            );
        }
        // A specification with other weights is not that of the table.
        let mut spec = plan.spec().clone();
        spec.sources[0].weight.as_mut().expect("weights").column = "id".into();
        let error = StreamPlan::load(&engine, &spec).await.map(|_| ()).expect_err("other weights");
        assert!(
            error.kind() == ErrorKind::StateMismatch
                && error.to_string().contains("weights in column \"id\" are others"),
            "{error}"
        );
    });
}

#[test]
fn queries_of_mixtures_have_weights_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 500).await;
        let twice = "SELECT x, id, name, CAST(2 AS DOUBLE) AS w FROM t WHERE id >= 400";
        let once = "SELECT x, id, name, CAST(1 AS DOUBLE) AS w FROM t WHERE id < 200";
        let request = PlanRequest {
            queries: vec![Query::new(twice, &[]), Query::new(once, &[])],
            mix: Some(MixOptions { weights: vec![0.5, 0.5], stop: MixtureStop::First, epoch_rows: 0 }),
            options: options(ShuffleMode::Block, 1),
            run_id: None,
        };
        let plan = StreamPlan::plan(&engine, &request).await.expect("a mixture");
        let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Uneven);
        let rows = sorted(ids(&plan, slice, slice.num_steps(plan.num_rows())).await.concat());
        assert!((399..=400).contains(&rows.len()), "{} rows", rows.len());
        let times = |range: std::ops::Range<i64>| range.map(|id| rows.iter().filter(|row| **row == id).count());
        assert!(times(0..200).filter(|times| *times == 1).count() >= 199);
        assert!(times(400..500).filter(|times| *times == 2).count() >= 99);
    });
}
