//! States are the same on all ranks, small, and valid for one stream only.

use futures::future::try_join_all;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker_types::{BatchLogEntry, ErrorKind, StreamOptions, StreamState};

use crate::tests::contracts::case::{Case, Filter, Query, case};
use crate::tests::contracts::delivery::{Stop, read_rank};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

/// The most bytes of a state.
pub const STATE_BYTES_MAX: usize = 1_023;

#[test]
fn states_are_equal_and_pin_their_stream_in_process() {
    check(Transport::InProcess, (case(), 0..=20u64), states_are_equal_and_pin_their_stream);
}

#[test]
fn states_are_equal_and_pin_their_stream_over_flight() {
    check(Transport::OverFlight, (case(), 0..=20u64), states_are_equal_and_pin_their_stream);
}

/// Ranks that each plan a stream for themselves have the same state after the same number of batches. The state
/// survives JSON and opens the stream; streams with another seed, order or query refuse it.
async fn states_are_equal_and_pin_their_stream(lab: &Lab, (case, num_batches): &(Case, u64)) -> TestCaseResult {
    let plans = try_join_all((0..case.job.world_size).map(|_| lab.plan(case))).await?;
    let read = |(handle, rank)| read_rank(handle, &case.job, rank, Stop::After(*num_batches));
    let ranks = try_join_all(plans.iter().zip(0..).map(read)).await?;
    let log = vec![BatchLogEntry { step: 1 << 40, position: 1 << 40, global_batch: 1 << 20 }; *num_batches as usize];
    let states: Vec<String> =
        plans.iter().zip(&ranks).map(|(handle, rank)| rank.state(handle, 1 << 41, &log).to_json()).collect();
    prop_assert!(states.iter().all(|state| *state == states[0]), "ranks have different states: {states:?}");
    prop_assert!(states[0].len() <= STATE_BYTES_MAX, "{} bytes: {}", states[0].len(), states[0]);

    let state = StreamState::from_json(&states[0])?;
    prop_assert_eq!(state.to_json(), states[0].as_str());
    for connection in [lab.connection(case.num_endpoints), lab.local()] {
        let opened = connection.load_stream(&state).await?;
        prop_assert!(opened.spec() == plans[0].spec(), "{:?} was opened for {:?}", opened.spec(), plans[0].spec());
    }
    for other in others(case) {
        let plan = lab.plan(&other).await?;
        let is_refused = state.check(plan.spec()).is_err_and(|error| error.kind() == ErrorKind::StateMismatch);
        prop_assert!(is_refused, "the state is good for {other:?} too");
    }
    Ok(())
}

/// Returns cases with another seed, other lanes and another query.
fn others(case: &Case) -> [Case; 3] {
    let options = |options: StreamOptions| Case { options, ..case.clone() };
    let filter = Filter::Remainder { divisor: 97, remainder: 14 };
    [
        options(StreamOptions { seed: !case.options.seed, ..case.options.clone() }),
        options(StreamOptions { num_lanes: case.options.num_lanes + 1, ..case.options.clone() }),
        Case { query: Query { filter, ..case.query }, ..case.clone() },
    ]
}
