//! A stream that is interrupted and resumed by one job after another.

use std::collections::BTreeMap;
use std::iter::repeat_n;

use futures::future::try_join_all;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker::{Connection, StreamHandle};
use stoker_types::calls::VerifyReceipts;
use stoker_types::{EpochVerdict, Receipt, ResumePoint, StreamState};

use crate::tests::contracts::case::{Job, Leg};
use crate::tests::contracts::delivery::{Stop, deliver_until, global_rows, whole_epoch};
use crate::tests::contracts::lab::{Lab, Row};
use crate::tests::contracts::states::STATE_BYTES_MAX;

/// What the jobs delivered so far.
pub struct Trip<'a> {
    lab: &'a Lab,
    connection: &'a Connection,
    /// The state after the latest job, as JSON.
    pub state: String,
    /// The latest job.
    job: Job,
    /// The delivered rows of each epoch, in order of position.
    pub rows: BTreeMap<u64, Vec<Row>>,
    receipts: Vec<Receipt>,
}

impl<'a> Trip<'a> {
    /// Begins a trip at a state.
    pub fn new(lab: &'a Lab, connection: &'a Connection, state: &StreamState, job: Job) -> Self {
        Self { lab, connection, state: state.to_json(), job, rows: BTreeMap::new(), receipts: Vec::new() }
    }

    /// Resumes with the ranks of a leg until they are interrupted.
    pub async fn ride_leg(&mut self, leg: &Leg) -> TestCaseResult {
        let (num_batches, num_ahead) = (leg.num_batches, leg.num_ahead);
        let stop = |rank: u32| if rank < num_ahead { Stop::Amid(num_batches) } else { Stop::After(num_batches) };
        self.ride(leg.job, stop).await
    }

    /// Resumes from the state with a job whose ranks stop at different times, and keeps the state after it.
    pub async fn ride(&mut self, job: Job, stop: impl Fn(u32) -> Stop) -> TestCaseResult {
        let state = StreamState::from_json(&self.state)?;
        let handle = self.connection.load_stream(&state).await?;
        self.job = job.resume(state.epoch, state.position, handle.num_rows());
        let ranks = deliver_until(&handle, &self.job, stop).await?;
        let log = if self.job.origin == 0 { Vec::new() } else { state.log };
        let states: Vec<String> = ranks.iter().map(|rank| rank.state(&handle, state.step, &log).to_json()).collect();
        self.keep_state(&states)?;
        let rows = global_rows(self.lab, &ranks)?.concat();
        self.rows.entry(self.job.epoch).or_default().extend(rows);
        self.receipts.extend(ranks.into_iter().map(|rank| rank.receipt));
        Ok(())
    }

    /// Changes the weights of a mixture from the state on: in every rank of the latest job and in a process with its
    /// own engine, each on its own. All must get the same state.
    pub async fn reweigh(&mut self, weights: &[f64]) -> TestCaseResult {
        let state = StreamState::from_json(&self.state)?;
        let connections = repeat_n(self.connection, self.job.world_size as usize).chain([self.lab.local()]);
        let changed = try_join_all(connections.map(|connection| reweigh(connection, &state, weights))).await?;
        let place = ResumePoint { epoch: state.epoch, position: state.position, step: state.step };
        let states: Vec<String> = changed.iter().map(|handle| handle.state(place, &state.log).to_json()).collect();
        self.keep_state(&states)
    }

    /// Checks that all ranks have the same state, and keeps it.
    fn keep_state(&mut self, states: &[String]) -> TestCaseResult {
        prop_assert!(states.iter().all(|state| *state == states[0]), "ranks have different states: {states:?}");
        prop_assert!(states[0].len() <= STATE_BYTES_MAX, "{} bytes: {}", states[0].len(), states[0]);
        self.state.clone_from(&states[0]);
        Ok(())
    }

    /// Returns how many rows of an epoch were not delivered: only the last job may drop rows.
    pub fn num_dropped(&self, epoch: u64, num_rows: u64) -> u64 {
        if epoch == self.job.epoch { self.job.num_dropped(num_rows) } else { 0 }
    }

    /// Checks that each epoch came as a single rank gets it.
    pub async fn check_rows(&self, alone: &StreamHandle) -> TestCaseResult {
        for (epoch, found) in &self.rows {
            let mut expected = whole_epoch(self.lab, alone, *epoch).await?;
            expected.truncate(expected.len() - self.num_dropped(*epoch, alone.num_rows()) as usize);
            let first = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            let lengths = (found.len(), expected.len());
            prop_assert!(*found == expected, "epoch {epoch}: {lengths:?} rows, and other ones from {first:?} on");
        }
        Ok(())
    }

    /// Assigns the receipts to a stream that continues theirs, as a process does when weights change.
    pub fn assign_receipts(&mut self, handle: &StreamHandle) {
        let stream_id = handle.spec().stream_id();
        self.receipts.iter_mut().for_each(|receipt| receipt.stream_id = stream_id);
    }

    /// Checks that the receipts of all jobs prove all epochs of which rows were delivered.
    pub async fn check_receipts(&self, num_rows: u64) -> TestCaseResult {
        let verdicts = self.connection.call(VerifyReceipts { receipts: self.receipts.clone() }).await?;
        let is_delivered = |verdict: &&EpochVerdict| left_out(verdict) < num_rows;
        let num_delivered = verdicts.iter().filter(is_delivered).count();
        prop_assert_eq!(num_delivered, self.rows.values().filter(|rows| !rows.is_empty()).count());
        for verdict in verdicts {
            let is_proven = verdict.repeated.count == 0 && verdict.wrong.is_empty();
            prop_assert!(is_proven && left_out(&verdict) == self.num_dropped(verdict.epoch, num_rows), "{verdict:?}");
        }
        Ok(())
    }

    /// Checks that receipts without a part, or with one part twice, do not prove the epoch, and that the verdict counts
    /// the rows of that part.
    pub async fn check_changed_receipts(&self, num_rows: u64, part: Index) -> TestCaseResult {
        // A rank that had no row of a global batch has an empty part; without it nothing is missing.
        let places = self.receipts.iter().enumerate().flat_map(|(receipt, found)| {
            let parts = found.parts.iter().enumerate().filter(|(_, part)| part.positions().next().is_some());
            parts.map(move |(part, _)| (receipt, part))
        });
        let places: Vec<(usize, usize)> = places.collect();
        if places.is_empty() {
            return Ok(());
        }
        let (receipt, index) = *part.get(&places);
        let part = &self.receipts[receipt].parts[index];
        let num_rows_of_part = part.positions().count() as u64;

        let mut without = self.receipts.clone();
        without[receipt].parts.remove(index);
        let verdict = self.verdict(&without, part.epoch).await?;
        // An epoch that no receipt names has no verdict.
        let num_left_out = verdict.map_or(num_rows, |verdict| left_out(&verdict));
        prop_assert_eq!(num_left_out, self.num_dropped(part.epoch, num_rows) + num_rows_of_part);

        let mut doubled = self.receipts.clone();
        doubled[receipt].parts.push(part.clone());
        let verdict = self.verdict(&doubled, part.epoch).await?;
        prop_assert_eq!(verdict.map(|verdict| verdict.repeated.count), Some(num_rows_of_part));
        Ok(())
    }

    async fn verdict(&self, receipts: &[Receipt], epoch: u64) -> stoker::Result<Option<EpochVerdict>> {
        let verdicts = self.connection.call(VerifyReceipts { receipts: receipts.to_vec() }).await?;
        Ok(verdicts.into_iter().find(|verdict| verdict.epoch == epoch))
    }
}

/// Returns how many positions were not delivered. A receipt names dropped positions only if its rank got the last batch
/// of the epoch.
fn left_out(verdict: &EpochVerdict) -> u64 {
    verdict.missing.count + verdict.dropped.count
}

/// Loads the stream of a state and gives it other weights from there on.
async fn reweigh(connection: &Connection, state: &StreamState, weights: &[f64]) -> stoker::Result<StreamHandle> {
    let handle = connection.load_stream(state).await?;
    handle.reweigh(state.epoch, state.position, weights).await
}
