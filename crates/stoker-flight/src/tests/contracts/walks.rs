//! Interruptions, each followed by a resume on other ranks with other batches.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestCaseResult;
use stoker_stream::{EpochVerdict, Receipt};
use stoker_types::{Place, StreamState};

use crate::Connection;
use crate::tests::contracts::case::{Case, Job, Leg, case, leg};
use crate::tests::contracts::delivery::{Stop, check_once, deliver_until, global_batches};
use crate::tests::contracts::lab::Lab;
use crate::tests::contracts::{Transport, check};

#[test]
fn a_walk_loses_and_repeats_no_row_in_process() {
    check(Transport::InProcess, walk(), a_walk_loses_and_repeats_no_row);
}

#[test]
fn a_walk_loses_and_repeats_no_row_over_flight() {
    check(Transport::OverFlight, walk(), a_walk_loses_and_repeats_no_row);
}

/// Jobs that follow each other until the last one ends its epoch.
#[derive(Clone, Debug)]
struct Walk {
    /// Its job is the last one; its epoch is the first one.
    case: Case,
    legs: Vec<Leg>,
    /// Which part of the receipts is removed and doubled.
    part: Index,
}

fn walk() -> impl Strategy<Value = Walk> {
    let parts = case().prop_flat_map(|case| {
        let table_rows = case.query.table_rows as u64;
        (Just(case), vec(leg(table_rows), 1..=4), any::<Index>())
    });
    parts.prop_map(|(case, legs, part)| Walk { case, legs, part })
}

/// Through any interruptions and resumes, also over the borders of epochs, each epoch delivers each row once, and the receipts
/// prove it, unless a part of them is missing or doubled.
async fn a_walk_loses_and_repeats_no_row(lab: &Lab, walk: &Walk) -> TestCaseResult {
    let start = Place { epoch: walk.case.job.epoch, position: 0, step: 0 };
    let state = lab.plan(&walk.case).await?.state(start, &[]);
    let connection = lab.connection(&walk.case);
    let mut trip = Trip {
        lab,
        connection,
        state: state.to_json(),
        job: walk.case.job,
        ids: BTreeMap::new(),
        receipts: Vec::new(),
    };
    for leg in &walk.legs {
        let (num_batches, num_ahead) = (leg.num_batches, leg.num_ahead);
        let stop = |rank: u32| if rank < num_ahead { Stop::Amid(num_batches) } else { Stop::After(num_batches) };
        trip.ride(leg.job, stop).await?;
    }
    trip.ride(walk.case.job, |_| Stop::AtEnd).await?;

    let num_rows = state.num_rows;
    for (epoch, ids) in &trip.ids {
        check_once(&walk.case.query, ids.clone(), trip.num_dropped(*epoch, num_rows))?;
    }
    trip.check_receipts(num_rows).await?;
    trip.check_changed_receipts(num_rows, walk.part).await
}

/// What was delivered on the way.
struct Trip<'a> {
    lab: &'a Lab,
    connection: &'a Connection,
    /// The state after the latest job, as JSON.
    state: String,
    /// The latest job.
    job: Job,
    /// The delivered ids of each epoch.
    ids: BTreeMap<u64, Vec<i64>>,
    receipts: Vec<Receipt>,
}

impl Trip<'_> {
    /// Resumes from the state with a job whose ranks stop sooner or later, and keeps the state after it.
    async fn ride(&mut self, job: Job, stop: impl Fn(u32) -> Stop) -> TestCaseResult {
        let state = StreamState::from_json(&self.state)?;
        let handle = self.connection.load_stream(&state).await?;
        self.job = job.resume(state.epoch, state.position, handle.num_rows());
        let ranks = deliver_until(&handle, &self.job, stop).await?;
        let log = if self.job.origin == 0 { Vec::new() } else { state.log };
        let states: Vec<String> = ranks.iter().map(|rank| rank.state(&handle, state.step, &log).to_json()).collect();
        prop_assert!(states.iter().all(|state| *state == states[0]), "ranks have different states: {states:?}");
        self.state.clone_from(&states[0]);
        let ids = global_batches(self.lab, &ranks)?.concat();
        self.ids.entry(self.job.epoch).or_default().extend(ids);
        self.receipts.extend(ranks.into_iter().map(|rank| rank.receipt));
        Ok(())
    }

    /// Rows of an epoch that were not delivered: only the last job may drop some.
    fn num_dropped(&self, epoch: u64, num_rows: u64) -> u64 {
        if epoch == self.job.epoch { self.job.num_dropped(num_rows) } else { 0 }
    }

    /// The receipts of all jobs prove all epochs of which something was delivered.
    async fn check_receipts(&self, num_rows: u64) -> TestCaseResult {
        let verdicts = self.connection.verify(&self.receipts).await?;
        prop_assert_eq!(verdicts.len(), self.ids.values().filter(|ids| !ids.is_empty()).count());
        for verdict in verdicts {
            let EpochVerdict { missing, repeated, wrong, .. } = &verdict;
            let is_proven = repeated.count == 0 && wrong.is_empty();
            prop_assert!(is_proven && missing.count == self.num_dropped(verdict.epoch, num_rows), "{verdict:?}");
        }
        Ok(())
    }

    /// Without a part, or with one twice, they do not, and the verdict counts its rows.
    async fn check_changed_receipts(&self, num_rows: u64, part: Index) -> TestCaseResult {
        // A rank may have had no row of a global batch: then nothing is missing without its part.
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
        let num_missing = verdict.map_or(num_rows, |verdict| verdict.missing.count);
        prop_assert_eq!(num_missing, self.num_dropped(part.epoch, num_rows) + num_rows_of_part);

        let mut doubled = self.receipts.clone();
        doubled[receipt].parts.push(part.clone());
        let verdict = self.verdict(&doubled, part.epoch).await?;
        prop_assert_eq!(verdict.map(|verdict| verdict.repeated.count), Some(num_rows_of_part));
        Ok(())
    }

    async fn verdict(&self, receipts: &[Receipt], epoch: u64) -> crate::Result<Option<EpochVerdict>> {
        let verdicts = self.connection.verify(receipts).await?;
        Ok(verdicts.into_iter().find(|verdict| verdict.epoch == epoch))
    }
}
