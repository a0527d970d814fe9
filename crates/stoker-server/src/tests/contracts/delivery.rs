//! Reads the slices of a job's ranks.

use std::collections::BTreeMap;

use futures::FutureExt;
use futures::future::try_join_all;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker::StreamHandle;
use stoker_batch::Batch;
use stoker_types::{
    BatchLogEntry, BatchSize, Batching, LastBatch, ReadOptions, Receipt, ResumePoint, Slice, StreamState,
};

use crate::tests::contracts::case::{Job, Query};
use crate::tests::contracts::lab::{Lab, Row};

/// The batch size of a rank that reads a whole epoch alone.
const BATCH_ROWS: u64 = 100;

/// What one rank received.
pub struct Delivered {
    pub slice: Slice,
    pub batches: Vec<Batch>,
    pub receipt: Receipt,
}

/// When a rank stops reading.
#[derive(Clone, Copy, Debug)]
pub enum Stop {
    /// At the end of the epoch.
    AtEnd,
    /// After this number of batches, or at the end of the epoch.
    After(u64),
    /// While it takes the batch after this number of batches.
    Amid(u64),
}

impl Delivered {
    /// Returns the state after the batches, for a rank that took `step` steps before, with the log `log`.
    pub fn state(&self, handle: &StreamHandle, step: u64, log: &[BatchLogEntry]) -> StreamState {
        let Slice { epoch, origin, .. } = self.slice;
        let mut log = log.to_vec();
        log.push(BatchLogEntry { step, position: origin, global_batch: self.slice.global_batch() });
        let position = self.batches.last().map_or(origin, |batch| batch.cursor.position);
        let place = ResumePoint { epoch, position, step: step + self.batches.len() as u64 };
        handle.state(place, &log)
    }
}

/// Reads all batches of all ranks, which read at the same time.
pub async fn deliver(handle: &StreamHandle, job: &Job) -> Result<Vec<Delivered>, TestCaseError> {
    deliver_until(handle, job, |_| Stop::AtEnd).await
}

/// Reads the batches of all ranks, each until it stops.
pub async fn deliver_until(
    handle: &StreamHandle,
    job: &Job,
    stop: impl Fn(u32) -> Stop,
) -> Result<Vec<Delivered>, TestCaseError> {
    try_join_all((0..job.world_size).map(|rank| read_rank(handle, job, rank, stop(rank)))).await
}

/// Reads the batches of one rank. Its receipt does not name the batch during which it was interrupted.
pub async fn read_rank(handle: &StreamHandle, job: &Job, rank: u32, stop: Stop) -> Result<Delivered, TestCaseError> {
    let slice = job.slice(rank);
    let num_left = slice.num_steps(handle.num_rows()).saturating_sub(slice.first_step);
    let num_wanted = match stop {
        Stop::AtEnd => num_left,
        Stop::After(num_batches) | Stop::Amid(num_batches) => num_batches.min(num_left),
    };
    let mut stream = handle.open(&slice, &job.read).await?;
    let mut batches = Vec::new();
    for index in 0..num_wanted {
        let batch = stream.next().await?;
        let ended = || TestCaseError::fail(format!("rank {rank} got {index} of {num_wanted} batches"));
        batches.push(batch.ok_or_else(ended)?);
    }
    let receipt = Receipt::from_json(&stream.receipt().to_json())?;
    match stop {
        Stop::AtEnd => {
            let beyond = stream.next().await?;
            prop_assert!(beyond.is_none(), "rank {rank} got a batch after the last one");
        }
        Stop::After(_) => {}
        Stop::Amid(_) => drop(stream.next().now_or_never()),
    }
    Ok(Delivered { slice, batches, receipt })
}

/// Reads the rows of an epoch with a single rank, in order of position.
pub async fn whole_epoch(lab: &Lab, handle: &StreamHandle, epoch: u64) -> Result<Vec<Row>, TestCaseError> {
    let batching = Batching { size: BatchSize::Global(BATCH_ROWS), last: LastBatch::Uneven };
    let job = Job { world_size: 1, batching, epoch, origin: 0, first_step: 0, read: ReadOptions::default() };
    Ok(global_rows(lab, &deliver(handle, &job).await?)?.concat())
}

/// Returns the ids of each global batch in order of position, without padding.
pub fn global_batches(lab: &Lab, ranks: &[Delivered]) -> Result<Vec<Vec<i64>>, TestCaseError> {
    let ids = |rows: Vec<Row>| rows.into_iter().map(|row| row.id).collect::<Vec<i64>>();
    Ok(global_rows(lab, ranks)?.into_iter().map(ids).collect())
}

/// Returns the rows of each global batch in order of position, without padding.
///
/// The k-th row (from zero) that rank r of W ranks received since the origin has the position `origin + r + k * W`.
pub fn global_rows(lab: &Lab, ranks: &[Delivered]) -> Result<Vec<Vec<Row>>, TestCaseError> {
    let mut placed: Vec<Vec<(usize, Row)>> = Vec::new();
    for (rank, delivered) in ranks.iter().enumerate() {
        let mut next = rank;
        for (index, batch) in delivered.batches.iter().enumerate() {
            if placed.len() == index {
                placed.push(Vec::new());
            }
            let rows = lab.rows(batch)?;
            for row in &rows[..batch.num_valid] {
                placed[index].push((next, *row));
                next += ranks.len();
            }
        }
    }
    let in_order = |mut batch: Vec<(usize, Row)>| {
        batch.sort_unstable();
        batch.into_iter().map(|(_, row)| row).collect::<Vec<Row>>()
    };
    Ok(placed.into_iter().map(in_order).collect())
}

/// Checks that all rows of an epoch were found once, or as often as their weights say, except for `num_dropped` dropped
/// rows.
pub fn check_once(query: &Query, mut found: Vec<i64>, num_dropped: u64) -> TestCaseResult {
    if query.is_weighted {
        return check_weighted(query, &found, num_dropped);
    }
    let mut expected = query.ids();
    expected.sort_unstable();
    found.sort_unstable();
    let num_found = found.len();
    found.dedup();
    prop_assert!(found.len() == num_found, "{} of {num_found} rows are repetitions", num_found - found.len());
    let num_foreign = found.iter().filter(|id| expected.binary_search(id).is_err()).count();
    prop_assert!(num_foreign == 0, "{num_foreign} of {num_found} rows were not selected");
    prop_assert_eq!(num_found as u64 + num_dropped, expected.len() as u64);
    Ok(())
}

/// Checks that each row was found as often as its weight, rounded up or down, except for dropped rows.
fn check_weighted(query: &Query, found: &[i64], num_dropped: u64) -> TestCaseResult {
    let mut times: BTreeMap<i64, u64> = query.ids().into_iter().map(|id| (id, 0)).collect();
    for id in found {
        let Some(times) = times.get_mut(id) else {
            return Err(TestCaseError::fail(format!("row {id} was not selected")));
        };
        *times += 1;
    }
    for (id, times) in times {
        let weight = query.weight(id);
        let fits = times <= weight.ceil() as u64 && (num_dropped > 0 || times >= weight.floor() as u64);
        prop_assert!(fits, "row {id} comes {times} times; its weight is {weight}");
    }
    prop_assert_eq!(found.len() as u64 + num_dropped, query.epoch_rows());
    Ok(())
}
