//! All ranks take the same steps.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker::StreamHandle;
use stoker_batch::Batch;
use stoker_types::{BatchSize, Cursor, LastBatch};

use crate::tests::contracts::case::{Case, Job, case};
use crate::tests::contracts::delivery::{Delivered, deliver};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn ranks_take_equal_steps_in_process() {
    check(Transport::InProcess, case(), ranks_take_equal_steps);
}

#[test]
fn ranks_take_equal_steps_over_flight() {
    check(Transport::OverFlight, case(), ranks_take_equal_steps);
}

/// All ranks get the number of batches that follows from the policy, with equal cursors, and with shares that differ by
/// at most one row.
async fn ranks_take_equal_steps(lab: &Lab, case: &Case) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    check_steps(&handle, &case.job, case.query.epoch_rows(), &deliver(&handle, &case.job).await?)
}

/// Checks the steps of ranks that read an epoch of `num_rows` rows from its start.
pub fn check_steps(handle: &StreamHandle, job: &Job, num_rows: u64, ranks: &[Delivered]) -> TestCaseResult {
    let global = job.global_batch();
    let num_steps = match job.batching.last {
        LastBatch::Drop => num_rows / global,
        LastBatch::Pad | LastBatch::Uneven => num_rows.div_ceil(global),
    };
    for rank in ranks {
        prop_assert_eq!(rank.slice.num_steps(num_rows), num_steps);
        prop_assert_eq!(rank.batches.len() as u64, num_steps);
    }
    for step in 0..num_steps {
        let batches: Vec<&Batch> = ranks.iter().map(|rank| &rank.batches[step as usize]).collect();
        let position = num_rows.min((step + 1) * global);
        let cursor = Cursor { stream_id: handle.spec().stream_id(), epoch: job.epoch, position };
        for batch in &batches {
            prop_assert_eq!(batch.step, step);
            prop_assert_eq!(batch.cursor, cursor);
        }
        check_shares(job, position - step * global, &batches)?;
    }
    Ok(())
}

/// Checks the shares of a global batch with `num_rows` rows.
fn check_shares(job: &Job, num_rows: u64, batches: &[&Batch]) -> TestCaseResult {
    let valid: Vec<u64> = batches.iter().map(|batch| batch.num_valid as u64).collect();
    let all: Vec<u64> = batches.iter().map(|batch| batch.data.num_rows() as u64).collect();
    check_even(&valid, num_rows)?;
    match (job.batching.last, job.batching.size) {
        (LastBatch::Pad, BatchSize::PerRank(rows)) => {
            prop_assert!(all.iter().all(|found| *found == rows), "batches of {rows} rows have {all:?}");
        }
        (LastBatch::Pad, BatchSize::Global(rows)) => check_even(&all, rows)?,
        (LastBatch::Drop | LastBatch::Uneven, _) => prop_assert_eq!(&all, &valid),
    }
    Ok(())
}

/// Checks that the shares sum to `total` and differ by at most one row.
fn check_even(shares: &[u64], total: u64) -> TestCaseResult {
    let least = total / shares.len() as u64;
    let is_even = shares.iter().all(|share| (least..=least + 1).contains(share));
    prop_assert!(is_even && shares.iter().sum::<u64>() == total, "{total} rows are dealt as {shares:?}");
    Ok(())
}
