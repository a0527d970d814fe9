//! Mixtures are the same for every reader.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker_types::ReadOptions;

use crate::tests::contracts::case::Job;
use crate::tests::contracts::delivery::{deliver, global_rows};
use crate::tests::contracts::equal_steps::check_steps;
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::mixed_case::{MixedCase, mixed_case};
use crate::tests::contracts::provenance::check_row_addrs;
use crate::tests::contracts::same_batches::check_same;
use crate::tests::contracts::{Transport, check_few};

#[test]
fn mixtures_do_not_depend_on_who_reads_them_in_process() {
    check_few(Transport::InProcess, mixed_case(), mixtures_do_not_depend_on_who_reads_them);
}

#[test]
fn mixtures_do_not_depend_on_who_reads_them_over_flight() {
    check_few(Transport::OverFlight, mixed_case(), mixtures_do_not_depend_on_who_reads_them);
}

/// All ranks take equal steps and get the batches that the engine gives them in process; together they get the global
/// batches of a single rank. Each query is a table of its own.
async fn mixtures_do_not_depend_on_who_reads_them(lab: &Lab, case: &MixedCase) -> TestCaseResult {
    let handle = case.plan(lab.connection(case.num_endpoints)).await?;
    let local = case.plan(lab.local()).await?;
    prop_assert!(handle.spec() == local.spec(), "{:?} is planned as {:?}", local.spec(), handle.spec());
    prop_assert_eq!(handle.tables().len(), case.queries.len());
    let ranks = deliver(&handle, &case.job).await?;
    check_steps(&handle, &case.job, local.num_rows(), &ranks)?;
    check_row_addrs(lab, &handle, &ranks).await?;

    let engine = deliver(&local, &Job { read: ReadOptions::default(), ..case.job }).await?;
    check_same(&ranks, &engine, 0)?;
    prop_assert!(ranks.iter().zip(&engine).all(|(one, other)| one.receipt == other.receipt), "other receipts");

    let found = global_rows(lab, &ranks)?;
    let expected = global_rows(lab, &deliver(&local, &case.job.alone()).await?)?;
    prop_assert_eq!(found.len(), expected.len());
    for (step, (found, expected)) in found.iter().zip(&expected).enumerate() {
        prop_assert!(found == expected, "global batch {step} has the rows {found:?}, not {expected:?}");
    }
    Ok(())
}
