//! Row addresses name the delivered rows.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker::StreamHandle;
use stoker_batch::Batch;

use crate::tests::contracts::case::{Case, case};
use crate::tests::contracts::delivery::{Delivered, deliver};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn row_addrs_name_the_rows_in_process() {
    check(Transport::InProcess, case(), row_addrs_name_the_rows);
}

#[test]
fn row_addrs_name_the_rows_over_flight() {
    check(Transport::OverFlight, case(), row_addrs_name_the_rows);
}

/// At the snapshot of the stream, its tables have the delivered rows at their row addresses, padding included.
async fn row_addrs_name_the_rows(lab: &Lab, case: &Case) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    check_row_addrs(lab, &handle, &deliver(&handle, &case.job).await?).await
}

/// Checks that the tables of a stream have the delivered rows at their row addresses.
pub async fn check_row_addrs(lab: &Lab, handle: &StreamHandle, ranks: &[Delivered]) -> TestCaseResult {
    let batches: Vec<&Batch> = ranks.iter().flat_map(|rank| &rank.batches).collect();
    for (table, snapshot) in handle.spec().tables().enumerate() {
        let (mut addrs, mut ids) = (Vec::new(), Vec::new());
        for batch in &batches {
            prop_assert_eq!(batch.row_addrs[table].len(), batch.data.num_rows());
            for (addr, id) in batch.row_addrs[table].iter().zip(lab.checked_ids(batch)?) {
                // Other tables supply the other rows.
                if *addr != u64::MAX {
                    addrs.push(*addr);
                    ids.push(id);
                }
            }
        }
        let stored = lab.stored_ids(snapshot, &addrs).await?;
        prop_assert!(stored == ids, "{snapshot} has other rows at the addresses");
    }
    Ok(())
}
