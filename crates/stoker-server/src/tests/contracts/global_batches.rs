//! Global batches do not depend on the number of ranks.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::tests::contracts::case::{Case, case};
use crate::tests::contracts::delivery::{deliver, global_batches};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn any_number_of_ranks_gets_the_same_global_batches_in_process() {
    check(Transport::InProcess, case(), any_number_of_ranks_gets_the_same_global_batches);
}

#[test]
fn any_number_of_ranks_gets_the_same_global_batches_over_flight() {
    check(Transport::OverFlight, case(), any_number_of_ranks_gets_the_same_global_batches);
}

/// Several ranks together get the rows that a single rank with the same global batch size gets, in the same order.
async fn any_number_of_ranks_gets_the_same_global_batches(lab: &Lab, case: &Case) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    let expected = global_batches(lab, &deliver(&handle, &case.job.alone()).await?)?;
    let found = global_batches(lab, &deliver(&handle, &case.job).await?)?;
    prop_assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        prop_assert!(found == expected, "global batch {step} has the rows {found:?}, not {expected:?}");
    }
    Ok(())
}
