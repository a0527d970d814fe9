//! The order follows from seed, epoch and query.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker_types::{Batching, LastBatch, ShuffleMode, StreamOptions};

use crate::tests::contracts::case::{Case, Job, case};
use crate::tests::contracts::delivery::{check_once, deliver, global_batches};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

/// From this number of rows on, two random permutations agree in half of their positions with a probability below 1e-6.
const ROWS_MIN: usize = 20;

#[test]
fn seed_and_epoch_decide_the_order_in_process() {
    check(Transport::InProcess, case(), seed_and_epoch_decide_the_order);
}

#[test]
fn seed_and_epoch_decide_the_order_over_flight() {
    check(Transport::OverFlight, case(), seed_and_epoch_decide_the_order);
}

/// The same seed and epoch give the same order on any number of ranks, and another seed or epoch gives another order. A
/// stream that is not shuffled always has the order of the query.
async fn seed_and_epoch_decide_the_order(lab: &Lab, case: &Case) -> TestCaseResult {
    let alone = case.job.alone();
    let next = Job { epoch: case.job.epoch + 1, ..alone };
    let seed = case.options.seed.wrapping_add(1);
    let reseeded = Case { options: StreamOptions { seed, ..case.options.clone() }, ..case.clone() };
    let order = order_of(lab, case, &case.job).await?;
    let again = order_of(lab, case, &alone).await?;
    prop_assert!(order == again, "two orders of the same seed and epoch");
    for (what, other) in
        [("epoch", order_of(lab, case, &next).await?), ("seed", order_of(lab, &reseeded, &alone).await?)]
    {
        let num_same = order.iter().zip(&other).filter(|(one, other)| one == other).count();
        match case.options.shuffle {
            // Which copies of its rows an epoch has depends on seed and epoch.
            ShuffleMode::Sequential if case.query.is_weighted => {}
            ShuffleMode::Sequential => {
                prop_assert!(order == case.query.ids() && order == other, "another {what}, or not the query's order");
            }
            ShuffleMode::Block | ShuffleMode::Full => {
                let differs = order.len() < ROWS_MIN || num_same * 2 < order.len();
                prop_assert!(differs, "another {what} leaves {num_same} of {} rows in place", order.len());
            }
        }
    }
    Ok(())
}

/// Returns the ids of an epoch by position.
async fn order_of(lab: &Lab, case: &Case, job: &Job) -> Result<Vec<i64>, TestCaseError> {
    let whole = Job { batching: Batching { last: LastBatch::Uneven, ..job.batching }, ..*job };
    let handle = lab.plan(case).await?;
    let order = global_batches(lab, &deliver(&handle, &whole).await?)?.concat();
    check_once(&case.query, order.clone(), 0)?;
    Ok(order)
}
