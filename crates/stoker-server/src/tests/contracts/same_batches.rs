//! Batches do not depend on their source or on how they are read.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker_types::ReadOptions;

use crate::tests::contracts::case::{Case, Job, case};
use crate::tests::contracts::delivery::{Delivered, deliver};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn batches_do_not_depend_on_who_reads_them_in_process() {
    check(Transport::InProcess, (case(), 0..=50u64), batches_do_not_depend_on_who_reads_them);
}

#[test]
fn batches_do_not_depend_on_who_reads_them_over_flight() {
    check(Transport::OverFlight, (case(), 0..=50u64), batches_do_not_depend_on_who_reads_them);
}

/// With any memory budget, over Flight or in process, from the start or from a later step, the batches equal those of
/// the engine.
async fn batches_do_not_depend_on_who_reads_them(lab: &Lab, (case, first_step): &(Case, u64)) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    let local = case.plan(lab.local()).await?;
    prop_assert!(handle.spec() == local.spec(), "{:?} is planned as {:?}", local.spec(), handle.spec());
    prop_assert_eq!(handle.schema(), local.schema());
    let expected = deliver(&local, &Job { read: ReadOptions::default(), ..case.job }).await?;
    let found = deliver(&handle, &case.job).await?;
    check_same(&found, &expected, 0)?;
    for (found, expected) in found.iter().zip(&expected) {
        prop_assert!(found.receipt == expected.receipt, "{:?}, not {:?}", found.receipt, expected.receipt);
    }
    let later = Job { first_step: *first_step, ..case.job };
    check_same(&deliver(&handle, &later).await?, &expected, *first_step as usize)
}

/// Checks that ranks got the expected batches from a step on.
pub fn check_same(found: &[Delivered], expected: &[Delivered], first_step: usize) -> TestCaseResult {
    prop_assert_eq!(found.len(), expected.len());
    for (rank, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected.batches.get(first_step..).unwrap_or_default();
        prop_assert_eq!(found.batches.len(), expected.len(), "batches of rank {}", rank);
        for (found, expected) in found.batches.iter().zip(expected) {
            let step = expected.step;
            prop_assert_eq!(found.step, step);
            prop_assert_eq!(found.cursor, expected.cursor);
            prop_assert_eq!(found.num_valid, expected.num_valid);
            prop_assert!(found.row_addrs == expected.row_addrs, "rank {rank}, step {step}: other rows");
            prop_assert!(found.data == expected.data, "rank {rank}, step {step}: other bytes");
            prop_assert_eq!(&found.substituted, &expected.substituted);
        }
    }
    Ok(())
}
