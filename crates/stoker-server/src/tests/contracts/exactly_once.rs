//! Every selected row comes once, over all ranks.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::tests::contracts::case::{Case, case};
use crate::tests::contracts::delivery::{check_once, deliver, global_batches};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn every_row_comes_once_in_process() {
    check(Transport::InProcess, case(), every_row_comes_once);
}

#[test]
fn every_row_comes_once_over_flight() {
    check(Transport::OverFlight, case(), every_row_comes_once);
}

/// Every selected row comes once with its own bytes. A policy that drops rows drops fewer than a global batch. Padding
/// repeats rows of its global batch.
async fn every_row_comes_once(lab: &Lab, case: &Case) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    let has = |name: &str| handle.schema().field_with_name(name).is_ok();
    prop_assert!(case.query.kinds.iter().all(|column| has(column.name)), "{:?} lacks a column", handle.schema());
    let ranks = deliver(&handle, &case.job).await?;
    let batches = global_batches(lab, &ranks)?;
    check_once(&case.query, batches.concat(), case.job.num_dropped(handle.num_rows()))?;
    for (step, mut rows) in batches.into_iter().enumerate() {
        rows.sort_unstable();
        for (rank, delivered) in ranks.iter().enumerate() {
            let batch = &delivered.batches[step];
            let padding = lab.checked_ids(batch)?.split_off(batch.num_valid);
            let is_repeated = padding.iter().all(|id| rows.binary_search(id).is_ok());
            prop_assert!(is_repeated, "rank {rank}, step {step}: padding with rows of another global batch");
        }
    }
    Ok(())
}
