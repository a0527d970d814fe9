//! Weights that change during an epoch.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker_types::{ResumePoint, StreamState};

use crate::tests::contracts::case::{Leg, leg};
use crate::tests::contracts::delivery::Stop;
use crate::tests::contracts::lab::{Lab, Row};
use crate::tests::contracts::mixed_case::{MixedCase, mixed_case, weights};
use crate::tests::contracts::mixed_shares::{check_shares, check_whole_epochs};
use crate::tests::contracts::trip::Trip;
use crate::tests::contracts::{Transport, check_few};

#[test]
fn weights_may_change_at_any_step_in_process() {
    check_few(Transport::InProcess, course(), weights_may_change_at_any_step);
}

#[test]
fn weights_may_change_at_any_step_over_flight() {
    check_few(Transport::OverFlight, course(), weights_may_change_at_any_step);
}

/// Jobs that follow each other from the first row on. The weights change after each job but the last.
#[derive(Clone, Debug)]
struct Course {
    /// The mixture and the last job.
    case: MixedCase,
    changes: Vec<(Leg, Vec<f64>)>,
}

fn course() -> impl Strategy<Value = Course> {
    let parts = mixed_case().prop_flat_map(|case| {
        let change = (leg(case.epoch_rows()), weights(case.queries.len()));
        (Just(case), vec(change, 1..=3))
    });
    parts.prop_map(|(case, changes)| Course { case, changes })
}

/// All processes that set the same weights get the same stream. The rows before the change stay. After the change each
/// query has its new share, and continues its own epoch. The last stream verifies the receipts of the streams before
/// it.
async fn weights_may_change_at_any_step(lab: &Lab, course: &Course) -> TestCaseResult {
    let connection = lab.connection(course.case.num_endpoints);
    let first = course.case.plan(connection).await?;
    let mut trip = Trip::new(lab, connection, &first.state(ResumePoint::default(), &[]), course.case.job);
    for (leg, weights) in &course.changes {
        trip.ride_leg(leg).await?;
        trip.reweigh(weights).await?;
    }
    trip.ride(course.case.job, |_| Stop::AtEnd).await?;

    let last = lab.local().load_stream(&StreamState::from_json(&trip.state)?).await?;
    prop_assert_eq!(last.num_rows(), first.num_rows());
    trip.check_rows(&last).await?;
    trip.assign_receipts(&last);
    trip.check_receipts(last.num_rows()).await?;
    let rows: Vec<Row> = trip.rows.into_values().flatten().collect();
    check_shares(&last, &rows)?;
    check_whole_epochs(&course.case, &rows)
}
