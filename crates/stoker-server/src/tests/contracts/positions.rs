//! Positions in slices and receipts; these tests need no lake.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use stoker_types::{ReceiptPart, Slice};

use crate::tests::contracts::case::{Job, Leg, job, leg};

/// The most rows of a stream.
const ROWS_MAX: u64 = 3_000;

/// A number of rows, jobs that are interrupted, and the last job.
fn walk() -> impl Strategy<Value = (u64, Vec<Leg>, Job)> {
    (0..=ROWS_MAX).prop_flat_map(|num_rows| (Just(num_rows), vec(leg(num_rows), 0..=6), job(num_rows)))
}

/// A number of rows, and a job that begins at any position.
fn resumed() -> impl Strategy<Value = (u64, Job)> {
    let parts = (0..=ROWS_MAX).prop_flat_map(|num_rows| (Just(num_rows), job(num_rows), 0..=num_rows));
    parts.prop_map(|(num_rows, job, origin)| (num_rows, Job { origin, ..job }))
}

/// Returns the positions of the rows that a rank gets in a step.
fn positions(slice: &Slice, step: u64, num_rows: u64) -> Vec<u64> {
    let share = slice.share(step, num_rows);
    (0..share.num_valid).map(|index| share.position(index)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_walk_visits_every_position_once((num_rows, legs, last) in walk()) {
        let mut visited: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let (mut epoch, mut position) = (0, 0);
        let mut latest = last;
        for (job, num_batches) in legs.iter().map(|leg| (leg.job, leg.num_batches)).chain([(last, u64::MAX)]) {
            latest = job.resume(epoch, position, num_rows);
            let num_steps = latest.slice(0).num_steps(num_rows).min(num_batches);
            for rank in 0..latest.world_size {
                let slice = latest.slice(rank);
                prop_assert_eq!(slice.num_steps(num_rows).min(num_batches), num_steps);
                let found = (0..num_steps).flat_map(|step| positions(&slice, step, num_rows));
                visited.entry(latest.epoch).or_default().extend(found);
            }
            epoch = latest.epoch;
            position = match num_steps.checked_sub(1) {
                Some(step) => latest.slice(0).position_after(step, num_rows),
                None => latest.origin,
            };
        }
        for (epoch, mut found) in visited {
            let num_dropped = if epoch == latest.epoch { latest.num_dropped(num_rows) } else { 0 };
            found.sort_unstable();
            prop_assert!(found.into_iter().eq(0..num_rows - num_dropped), "epoch {epoch}");
        }
    }

    #[test]
    fn global_batches_have_the_same_positions_on_any_number_of_ranks((num_rows, job) in resumed()) {
        let global = job.global_batch();
        let mut next = job.origin;
        for step in 0..job.slice(0).num_steps(num_rows) {
            let ranks = 0..job.world_size;
            let mut found: Vec<u64> = ranks.flat_map(|rank| positions(&job.slice(rank), step, num_rows)).collect();
            found.sort_unstable();
            let end = num_rows.min(next + global);
            prop_assert!(found.into_iter().eq(next..end), "step {step} is not {next}..{end}");
            next = end;
        }
        prop_assert_eq!(next, num_rows - job.num_dropped(num_rows));
    }

    #[test]
    fn a_receipt_part_has_the_positions_of_its_rank(
        (num_rows, job) in resumed(), rank: prop::sample::Index, first: prop::sample::Index, num_more: u8,
    ) {
        let slice = job.slice(rank.index(job.world_size as usize) as u32);
        let num_steps = slice.num_steps(num_rows);
        prop_assume!(num_steps > 0);
        let first = first.index(num_steps as usize) as u64;
        let last = (first + u64::from(num_more)).min(num_steps - 1);
        let part = ReceiptPart {
            epoch: slice.epoch,
            origin: slice.origin,
            rank: slice.topology.rank,
            world_size: slice.topology.world_size,
            start: slice.positions(first, num_rows).start,
            end: slice.position_after(last, num_rows),
            sum: 0,
            substituted: Vec::new(),
        };
        let expected: Vec<u64> = (first..=last).flat_map(|step| positions(&slice, step, num_rows)).collect();
        prop_assert_eq!(part.positions().collect::<Vec<u64>>(), expected.as_slice());
        let has = |position: u64| part.positions_in(&(position..position + 1)).next().is_some();
        let has_others = (0..num_rows).any(|position| has(position) != expected.binary_search(&position).is_ok());
        prop_assert!(!has_others, "{part:?} has other positions");
    }
}
