//! Mixtures that are interrupted and resumed.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker_types::ResumePoint;

use crate::tests::contracts::case::{Leg, leg};
use crate::tests::contracts::delivery::Stop;
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::mixed_case::{MixedCase, mixed_case};
use crate::tests::contracts::trip::Trip;
use crate::tests::contracts::{Transport, check_few};

#[test]
fn a_walk_over_a_mixture_keeps_its_order_in_process() {
    check_few(Transport::InProcess, walk(), a_walk_over_a_mixture_keeps_its_order);
}

#[test]
fn a_walk_over_a_mixture_keeps_its_order_over_flight() {
    check_few(Transport::OverFlight, walk(), a_walk_over_a_mixture_keeps_its_order);
}

/// Jobs that follow each other over at least one end of an epoch, until the last one ends its epoch.
#[derive(Clone, Debug)]
struct Walk {
    /// The mixture and the last job. The first job begins in the epoch of this one.
    case: MixedCase,
    before: Vec<Leg>,
    /// A job that is not interrupted: its ranks end an epoch.
    border: Leg,
    after: Vec<Leg>,
    /// The part of the receipts that is removed and then doubled.
    part: Index,
}

fn walk() -> impl Strategy<Value = Walk> {
    let parts = mixed_case().prop_flat_map(|case| {
        let num_rows = case.epoch_rows();
        let legs = || vec(leg(num_rows), 0..=2);
        (Just(case), legs(), leg(num_rows), legs(), any::<Index>())
    });
    parts.prop_map(|(case, before, border, after, part)| Walk { case, before, border, after, part })
}

/// Through any interruptions and resumes, also over the end of an epoch, ranks get the rows that a single rank gets
/// without interruptions. The receipts prove it, unless a part of them is missing or doubled.
async fn a_walk_over_a_mixture_keeps_its_order(lab: &Lab, walk: &Walk) -> TestCaseResult {
    let Walk { case, before, border, after, part } = walk;
    let connection = lab.connection(case.num_endpoints);
    let start = ResumePoint { epoch: case.job.epoch, position: 0, step: 0 };
    let state = case.plan(connection).await?.state(start, &[]);
    let mut trip = Trip::new(lab, connection, &state, case.job);
    for leg in before {
        trip.ride_leg(leg).await?;
    }
    trip.ride(border.job, |_| Stop::AtEnd).await?;
    for leg in after {
        trip.ride_leg(leg).await?;
    }
    trip.ride(case.job, |_| Stop::AtEnd).await?;

    trip.check_rows(&case.plan(lab.local()).await?).await?;
    trip.check_receipts(state.num_rows).await?;
    trip.check_changed_receipts(state.num_rows, *part).await
}
