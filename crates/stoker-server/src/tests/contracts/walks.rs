//! Interruptions, each followed by a resume on other ranks with other batches.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker_types::ResumePoint;

use crate::tests::contracts::case::{Case, Leg, case, leg};
use crate::tests::contracts::delivery::{Stop, check_once};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::trip::Trip;
use crate::tests::contracts::{Transport, check};

#[test]
fn a_walk_loses_and_repeats_no_row_in_process() {
    check(Transport::InProcess, walk(), a_walk_loses_and_repeats_no_row);
}

#[test]
fn a_walk_loses_and_repeats_no_row_over_flight() {
    check(Transport::OverFlight, walk(), a_walk_loses_and_repeats_no_row);
}

/// Jobs that follow each other until the last one ends its epoch.
#[derive(Clone, Debug)]
struct Walk {
    /// The query and the last job. The first job begins in the epoch of this one.
    case: Case,
    legs: Vec<Leg>,
    /// The part of the receipts that is removed and then doubled.
    part: Index,
}

fn walk() -> impl Strategy<Value = Walk> {
    let parts = case().prop_flat_map(|case| {
        let table_rows = case.query.table_rows as u64;
        (Just(case), vec(leg(table_rows), 1..=4), any::<Index>())
    });
    parts.prop_map(|(case, legs, part)| Walk { case, legs, part })
}

/// Through any interruptions and resumes, also over the ends of epochs, each epoch delivers each row once. The receipts
/// prove it, unless a part of them is missing or doubled.
async fn a_walk_loses_and_repeats_no_row(lab: &Lab, walk: &Walk) -> TestCaseResult {
    let start = ResumePoint { epoch: walk.case.job.epoch, position: 0, step: 0 };
    let state = lab.plan(&walk.case).await?.state(start, &[]);
    let mut trip = Trip::new(lab, lab.connection(walk.case.num_endpoints), &state, walk.case.job);
    for leg in &walk.legs {
        trip.ride_leg(leg).await?;
    }
    trip.ride(walk.case.job, |_| Stop::AtEnd).await?;

    let num_rows = state.num_rows;
    for (epoch, rows) in &trip.rows {
        let ids = rows.iter().map(|row| row.id).collect();
        check_once(&walk.case.query, ids, trip.num_dropped(*epoch, num_rows))?;
    }
    trip.check_receipts(num_rows).await?;
    trip.check_changed_receipts(num_rows, walk.part).await
}
