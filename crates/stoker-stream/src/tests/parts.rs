//! Tests of batches that are delivered in parts.

use arrow_select::concat::concat_batches;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseResult, TestRunner};
use stoker_types::{BadRows, MixOptions, MixtureStop, PlanRequest, Query, ReadOptions, StreamOptions};

use super::bad_rows::damage;
use super::*;
use crate::part_plan::{PartSize, Parts};

const NUM_ROWS: i64 = 500;

/// Any slice of a stream of about [`NUM_ROWS`] rows.
fn slices() -> impl Strategy<Value = Slice> {
    let topology = (1..9u32).prop_flat_map(|world_size| {
        let rank = 0..world_size;
        rank.prop_map(move |rank| Topology { rank, world_size })
    });
    let size = prop_oneof![(1..80u64).prop_map(BatchSize::PerRank), (1..200u64).prop_map(BatchSize::Global)];
    let last = prop_oneof![Just(LastBatch::Pad), Just(LastBatch::Drop), Just(LastBatch::Uneven)];
    let origin = prop_oneof![Just(0u64), 0..NUM_ROWS as u64];
    (topology, size, last, 0..3u64, origin, 0..3u64).prop_map(|(topology, size, last, epoch, origin, first_step)| {
        Slice { topology, batching: Batching { size, last }, epoch, origin, first_step }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// The parts of a slice have each row of its batches once, in order, and no part needs positions of a later part: a
    /// unit that ends before a part completes all parts before it.
    #[test]
    fn parts_follow_each_other_in_their_batches_and_in_the_order(
        slice in slices(),
        num_rows in 0..600u64,
        rows_max in prop_oneof![1..40u64, Just(u64::MAX)],
    ) {
        let mut parts = Parts::new(slice, num_rows, rows_max);
        let mut number = 0;
        for step in slice.first_step..slice.num_steps(num_rows) {
            let (batch, share) = (slice.positions(step, num_rows), slice.share(step, num_rows));
            let (mut row, mut position) = (0, batch.start);
            loop {
                let part = parts.next().expect("a part");
                prop_assert_eq!((part.number, part.step, part.rows.start), (number, step, row));
                prop_assert_eq!(part.positions.start, position);
                prop_assert!(part.num_rows() <= rows_max && (part.num_rows() > 0 || share.num_rows == 0));
                for row in part.rows.clone() {
                    let at = share.position(row);
                    prop_assert!(at < part.positions.end && (at >= position || row >= share.num_valid));
                }
                let is_padding = part.num_rows() > 0 && part.rows.start >= share.num_valid.max(1);
                prop_assert_eq!(part.positions.is_empty(), is_padding);
                (row, position, number) = (part.rows.end, part.positions.end, number + 1);
                if row == share.num_rows {
                    break;
                }
            }
            prop_assert_eq!(position, batch.end);
        }
        prop_assert!(parts.next().is_none());
    }
}

/// A case of a slice that is read in parts.
#[derive(Clone, Debug)]
struct Case {
    /// The index of the plan.
    plan: usize,
    slice: Slice,
    part_bytes: u64,
    memory_budget_bytes: u64,
}

fn cases(num_plans: usize) -> impl Strategy<Value = Case> {
    let bytes = || prop_oneof![Just(1u64), 1..60_000u64, Just(1u64 << 30)];
    (0..num_plans, slices(), bytes(), bytes()).prop_map(|(plan, slice, part_bytes, memory_budget_bytes)| Case {
        plan,
        slice,
        part_bytes,
        memory_budget_bytes,
    })
}

/// Joins the parts of a batch.
fn join(parts: &[Part]) -> Batch {
    let Part { step, cursor, num_valid, ref data, ref row_addrs, .. } = parts[0];
    let addrs = |table: usize| parts.iter().flat_map(|part| part.row_addrs[table].iter().copied()).collect();
    Batch {
        step,
        cursor,
        data: concat_batches(&data.schema(), parts.iter().map(|part| &part.data)).expect("a batch"),
        num_valid,
        row_addrs: (0..row_addrs.len()).map(addrs).collect(),
        substituted: parts.iter().flat_map(|part| part.substituted.iter().cloned()).collect(),
        buckets: None,
    }
}

async fn check_case(plans: &[StreamPlan], case: &Case) -> TestCaseResult {
    let plan = &plans[case.plan];
    let options = ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() };
    let mut whole = plan.open(&case.slice, &options).expect("a stream");
    let options = ReadOptions { memory_budget_bytes: case.memory_budget_bytes, ..options };
    let budget = Resources::default();
    let mut parts = plan.open_parts(&budget, &case.slice, &options, case.part_bytes).expect("a stream");
    let rows_max = (case.part_bytes / plan.row_bytes()).max(1) as usize;
    let mut num_batches = 0;
    while let Some(batch) = whole.next().await.expect("a batch") {
        let mut found: Vec<Part> = Vec::new();
        while found.last().is_none_or(|part| !part.is_last()) {
            prop_assert_eq!(parts.stats().batches, num_batches);
            let part = parts.next().await.expect("a part").expect("not the end");
            let rows = found.iter().map(|part| part.data.num_rows()).sum::<usize>();
            prop_assert_eq!((part.first_row, part.num_rows), (rows, batch.data.num_rows()));
            prop_assert!(part.data.num_rows() <= rows_max);
            let rows = part.first_row..part.first_row + part.data.num_rows();
            prop_assert!(part.substituted.iter().all(|bad| rows.contains(&bad.row)));
            found.push(part);
        }
        num_batches += 1;
        let joined = join(&found);
        prop_assert_eq!((joined.step, joined.num_valid), (batch.step, batch.num_valid));
        prop_assert!(joined.cursor == batch.cursor && joined.data == batch.data, "other rows in step {}", batch.step);
        prop_assert_eq!(joined.row_addrs, batch.row_addrs);
        prop_assert_eq!(joined.substituted, batch.substituted);
    }
    prop_assert!(parts.next().await.expect("the end").is_none());
    let (found, expected) = (parts.stats(), whole.stats());
    prop_assert_eq!((found.batches, found.rows), (expected.batches, expected.rows));
    Ok(())
}

#[test]
fn parts_of_all_sizes_give_the_same_batches() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let plans = runtime.block_on(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), NUM_ROWS).await;
        damage(&engine, &[3, 100, 101, 102, 449, 450, 499]).await;
        let mut plans = Vec::new();
        for (shuffle, version) in ORDERS {
            plans.push(plan_of_version(&engine, ALL, shuffle, version).await);
        }
        let queries = ["SELECT x, id, name FROM t WHERE id < 200", "SELECT x, id, name FROM t WHERE id >= 200"];
        let request = PlanRequest {
            queries: queries.iter().map(|sql| Query::new(*sql, &[])).collect(),
            mix: Some(MixOptions { weights: vec![0.5, 0.5], stop: MixtureStop::First, epoch_rows: 0 }),
            options: StreamOptions { seed: 7, block_bytes: 8 << 10, num_lanes: 12, ..StreamOptions::default() },
            run_id: None,
        };
        plans.push(StreamPlan::plan(&engine, &request).await.expect("a plan"));
        plans
    });
    let config = ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() };
    let outcome = TestRunner::new(config).run(&cases(plans.len()), |case| runtime.block_on(check_case(&plans, &case)));
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

#[test]
fn rows_that_are_read_alone_come_in_the_same_batches() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        // The rows have so many bytes that they need several units after the first one.
        let engine = engine_of(folder.path().to_str().expect("UTF-8"), 300, 70_000).await;
        let plan = plan(&engine, ALL, ShuffleMode::Block).await;
        assert!(PartSize::Bytes(1).stays_cached(&plan.inner) && !PartSize::Batch.stays_cached(&plan.inner));
        for part_bytes in [1, 500_000, 1 << 30] {
            let slice = slice(0, 1, BatchSize::PerRank(64), LastBatch::Pad);
            let case = Case { plan: 0, slice, part_bytes, memory_budget_bytes: 1 << 30 };
            check_case(std::slice::from_ref(&plan), &case).await.expect("the same batches");
        }
    });
}

#[test]
fn a_batch_larger_than_the_budget_is_held_in_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), NUM_ROWS).await;
        for shuffle in [ShuffleMode::Block, ShuffleMode::Full] {
            let plan = plan(&engine, ALL, shuffle).await;
            let (budget_bytes, part_bytes) = (20 * plan.row_bytes(), 4 * plan.row_bytes());
            let budget = Resources::new(budget_bytes);
            let slice = slice(0, 1, BatchSize::PerRank(300), LastBatch::Pad);
            let mut stream = plan.open_parts(&budget, &slice, &ReadOptions::default(), part_bytes).expect("a stream");
            let mut parts = 0;
            while let Some(part) = stream.next().await.expect("a part") {
                assert!(
                    budget.memory().held_bytes() <= budget_bytes,
                    "{} bytes of {budget_bytes}",
                    budget.memory().held_bytes()
                );
                assert_eq!((part.data.num_rows(), part.is_last()), (4, parts % 75 == 74));
                parts += 1;
            }
            assert_eq!((parts, stream.stats().batches), (150, 2));
        }
    });
}

#[test]
fn padding_of_narrow_rows_comes_in_several_units() {
    const BATCH: u64 = 1_300_000;
    let folder = tempfile::tempdir().expect("a folder");
    run(async {
        let engine = engine(folder.path().to_str().expect("UTF-8"), 300).await;
        let plan = plan(&engine, "SELECT id FROM t", ShuffleMode::Block).await;
        let slice = slice(0, 1, BatchSize::PerRank(BATCH), LastBatch::Pad);
        let mut parts =
            plan.open_parts(&Resources::default(), &slice, &ReadOptions::default(), 1 << 20).expect("parts");
        let mut ids: Vec<i64> = Vec::new();
        while let Some(part) = parts.next().await.expect("a part") {
            assert_eq!((part.num_rows, part.num_valid, part.first_row), (BATCH as usize, 300, ids.len()));
            ids.extend(part.data.column(0).as_primitive::<Int64Type>().values());
        }
        assert_eq!(ids.len() as u64, BATCH);
        assert!(ids.chunks(300).all(|again| again == &ids[..again.len()]));
        let huge = super::slice(0, 1, BatchSize::Global(1 << 32), LastBatch::Pad);
        let error = plan.open(&huge, &ReadOptions::default()).map(|_| ()).expect_err("no memory holds it");
        assert_eq!(error.kind(), stoker_types::ErrorKind::ResourceExhausted, "{error}");
    });
}
