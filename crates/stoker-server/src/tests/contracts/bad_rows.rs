//! Rows whose stored bytes are damaged.

use std::collections::BTreeSet;

use futures::future::try_join_all;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use stoker::{Connection, Error, StreamHandle};
use stoker_types::calls::VerifyReceipts;
use stoker_types::{BadRows, BadShare, ErrorKind, Mixing, OrderOptions, ReadOptions, Receipt, ShuffleMode, Slice};

use crate::tests::contracts::case::{Case, Job, damaged_case};
use crate::tests::contracts::delivery::{Delivered, Stop, check_once, read_rank};
use crate::tests::contracts::equal_steps::check_steps;
use crate::tests::contracts::lab::{Lab, address, id_at};
use crate::tests::contracts::{Transport, check_damaged};

#[test]
fn all_substitute_the_same_rows_in_process() {
    check_damaged(Transport::InProcess, damaged_case(), all_substitute_the_same_rows);
}

#[test]
fn all_substitute_the_same_rows_over_flight() {
    check_damaged(Transport::OverFlight, damaged_case(), all_substitute_the_same_rows);
}

#[test]
fn bad_rows_stop_those_who_read_them_in_process() {
    check_damaged(Transport::InProcess, damaged_case(), bad_rows_stop_those_who_read_them);
}

#[test]
fn bad_rows_stop_those_who_read_them_over_flight() {
    check_damaged(Transport::OverFlight, damaged_case(), bad_rows_stop_those_who_read_them);
}

/// The next good row of its window replaces a bad row, for every reader; batches and receipts name the bad rows and no
/// others. A rank fails only if it reads a row of a window without a good row.
async fn all_substitute_the_same_rows(lab: &Lab, case: &Case) -> TestCaseResult {
    let connection = lab.connection(case.num_endpoints);
    let (handle, local) = (case.plan(connection).await?, case.plan(lab.local()).await?);
    let epoch = Epoch::of(lab, case, &local).await?;
    let job = with_policy(&case.job, BadRows::Substitute);
    for (handle, job) in [(&handle, job), (&local, job.alone())] {
        let ranks = epoch.read_all(lab, handle, &job).await?;
        let Some(ranks) = ranks.into_iter().collect::<Option<Vec<Delivered>>>() else { continue };
        check_steps(handle, &job, epoch.num_rows(), &ranks)?;
        epoch.check_receipts(connection, &job, &ranks).await?;
    }
    Ok(())
}

/// Without substitutes, the ranks that read a bad row fail, and no other ranks.
async fn bad_rows_stop_those_who_read_them(lab: &Lab, case: &Case) -> TestCaseResult {
    let handle = lab.plan(case).await?;
    let epoch = Epoch::of(lab, case, &case.plan(lab.local()).await?).await?;
    let job = with_policy(&case.job, BadRows::Error);
    let ranks = epoch.read_all(lab, &handle, &job).await?;
    let has_failed = ranks.iter().any(Option::is_none);
    prop_assert_eq!(has_failed, !epoch.substituted(&job).is_empty());
    Ok(())
}

fn with_policy(job: &Job, bad_rows: BadRows) -> Job {
    Job { read: ReadOptions { bad_rows, max_bad_share: BadShare::ALL, ..job.read }, ..*job }
}

/// Returns the position at which the window ends that begins at `start`, as the order's definition says.
fn window_end(order: &OrderOptions, num_rows: u64, start: u64) -> u64 {
    let (lanes, block) = (u64::from(order.num_lanes), order.rows_per_block);
    let next_multiple = |rows: u64| (start / rows + 1).saturating_mul(rows).min(num_rows);
    match (order.mode, order.mixing) {
        (_, Mixing::Windows { rows_per_window }) => next_multiple(rows_per_window.saturating_mul(lanes)),
        (ShuffleMode::Block, Mixing::DelayLine { super_strides_per_block }) => {
            let lane_blocks = num_rows / block / lanes;
            let num_strides = lane_blocks.max(1);
            let rows = if lane_blocks == 0 { 0 } else { block };
            let rest = num_rows / lanes - lane_blocks * block;
            let strides = super_strides_per_block.min(num_strides).max(1_024u64.div_ceil(block * lanes));
            let begin = |stride: u64| (stride * rows + rest * stride / num_strides) * lanes;
            let borders = (1..).map(|window| window * strides).take_while(|stride| *stride < num_strides).map(begin);
            borders.chain([num_rows]).find(|border| *border > start).expect("the last window ends with the epoch")
        }
        (_, Mixing::DelayLine { super_strides_per_block }) => {
            next_multiple(block.saturating_mul(super_strides_per_block).saturating_mul(lanes).max(1_024))
        }
    }
}

/// The expected content of an epoch of a damaged table.
struct Epoch {
    /// The address of the selected row at each position.
    wanted: Vec<u64>,
    /// The selected rows that are bad.
    bad: BTreeSet<u64>,
    /// The address of the delivered row at each position, after substitution; `None` where the window has no good row.
    delivered: Vec<Option<u64>>,
}

impl Epoch {
    async fn of(lab: &Lab, case: &Case, handle: &StreamHandle) -> Result<Self, TestCaseError> {
        let (stream_id, num_rows) = (handle.spec().stream_id(), handle.num_rows());
        let mut tables = lab.local().row_addrs(stream_id, case.job.epoch, 0..num_rows).await?;
        let wanted = tables.pop().unwrap_or_default();
        let selected: BTreeSet<u64> = case.query.ids().into_iter().map(address).collect();
        check_once(&case.query, wanted.iter().copied().map(id_at).collect(), 0)?;
        let damaged = lab.damaged_ids(case.query.table_rows).iter().map(|id| address(*id));
        let bad: BTreeSet<u64> = damaged.filter(|addr| selected.contains(addr)).collect();

        let order = &handle.spec().sources[0].order;
        let mut delivered = Vec::with_capacity(wanted.len());
        let mut rest = wanted.as_slice();
        while !rest.is_empty() {
            let end = window_end(order, num_rows, delivered.len() as u64) as usize;
            let window;
            (window, rest) = rest.split_at(end - delivered.len());
            for at in 0..window.len() {
                let from_here_on = window[at..].iter().chain(&window[..at]);
                delivered.push(from_here_on.copied().find(|addr| !bad.contains(addr)));
            }
        }
        Ok(Self { wanted, bad, delivered })
    }

    fn num_rows(&self) -> u64 {
        self.wanted.len() as u64
    }

    /// Reads the slices of all ranks. The result is `None` for the ranks that fail, as they must.
    async fn read_all(
        &self,
        lab: &Lab,
        handle: &StreamHandle,
        job: &Job,
    ) -> Result<Vec<Option<Delivered>>, TestCaseError> {
        try_join_all((0..job.world_size).map(|rank| self.read(lab, handle, job, rank))).await
    }

    async fn read(
        &self,
        lab: &Lab,
        handle: &StreamHandle,
        job: &Job,
        rank: u32,
    ) -> Result<Option<Delivered>, TestCaseError> {
        let fatal = self.fatal(&job.slice(rank), job.read.bad_rows);
        if fatal.is_empty() {
            let delivered = read_rank(handle, job, rank, Stop::AtEnd).await?;
            self.check_batches(lab, &delivered)?;
            return Ok(Some(delivered));
        }
        let error = failure(handle, job, rank).await?;
        let text = error.to_string();
        prop_assert!(error.kind() == ErrorKind::DataCorrupt, "rank {rank} fails with another error: {text}");
        let is_named = |addr: &u64| [" ", ":"].iter().any(|end| text.contains(&format!("row {addr:#x}{end}")));
        prop_assert!(fatal.iter().any(is_named), "rank {rank} cannot read {fatal:x?}, and fails with: {text}");
        Ok(None)
    }

    /// Returns the addresses of the rows that a rank must read and for which it cannot get a row.
    fn fatal(&self, slice: &Slice, bad_rows: BadRows) -> Vec<u64> {
        let steps = 0..slice.num_steps(self.num_rows());
        let all = steps.flat_map(|step| positions(slice, step, self.num_rows()));
        let is_fatal = |position: &usize| match bad_rows {
            BadRows::Error => self.bad.contains(&self.wanted[*position]),
            BadRows::Substitute => self.delivered[*position].is_none(),
        };
        all.filter(is_fatal).map(|position| self.wanted[position]).collect()
    }

    /// Checks that the batches of a rank contain the expected rows, and name the bad ones, padding included.
    fn check_batches(&self, lab: &Lab, rank: &Delivered) -> TestCaseResult {
        for batch in &rank.batches {
            let (step, positions) = (batch.step, positions(&rank.slice, batch.step, self.num_rows()));
            let found: Vec<Option<u64>> = lab.rows(batch)?.iter().map(|row| Some(address(row.id))).collect();
            let expected: Vec<Option<u64>> = positions.iter().map(|position| self.delivered[*position]).collect();
            prop_assert!(found == expected, "step {step} has the rows {found:x?}, not {expected:x?}");
            let wanted = positions.iter().map(|position| self.wanted[*position]).enumerate();
            let bad: Vec<(usize, u64)> = wanted.filter(|(_, addr)| self.bad.contains(addr)).collect();
            prop_assert!(batch.substituted.iter().all(|found| found.row_addrs.len() == 1), "step {step}");
            let named: Vec<(usize, u64)> =
                batch.substituted.iter().map(|found| (found.row, found.row_addrs[0])).collect();
            prop_assert!(named == bad, "step {step} names the bad rows {named:x?}, not {bad:x?}");
        }
        Ok(())
    }

    /// Returns the positions that a job delivers and whose rows are bad, with their addresses.
    fn substituted(&self, job: &Job) -> Vec<(u64, Vec<u64>)> {
        let num_delivered = self.num_rows() - job.num_dropped(self.num_rows());
        let wanted = (0..num_delivered).zip(self.wanted.iter().copied());
        let bad = wanted.filter(|(_, addr)| self.bad.contains(addr));
        bad.map(|(position, addr)| (position, vec![addr])).collect()
    }

    /// Checks that the receipts of all ranks prove the epoch, and name exactly the bad rows.
    async fn check_receipts(&self, connection: &Connection, job: &Job, ranks: &[Delivered]) -> TestCaseResult {
        let receipts: Vec<Receipt> = ranks.iter().map(|rank| rank.receipt.clone()).collect();
        let num_dropped = job.num_dropped(self.num_rows());
        let verdicts = connection.call(VerifyReceipts { receipts: receipts.clone() }).await?;
        prop_assert!(verdicts.len() == 1 || (verdicts.is_empty() && num_dropped == self.num_rows()));
        for verdict in verdicts {
            let is_proven =
                verdict.missing.count == 0 && verdict.dropped.count == num_dropped && verdict.repeated.count == 0;
            let named: Vec<(u64, Vec<u64>)> =
                verdict.substituted.iter().map(|row| (row.position, row.row_addrs.clone())).collect();
            let is_right = verdict.wrong.is_empty() && named == self.substituted(job);
            prop_assert!(is_proven && is_right, "{verdict:?}, where {:?} are bad", self.substituted(job));
        }
        Ok(())
    }
}

/// Returns the positions of the rows of a rank's batch, padding included.
fn positions(slice: &Slice, step: u64, num_rows: u64) -> Vec<usize> {
    let share = slice.share(step, num_rows);
    (0..share.num_rows).map(|row| share.position(row) as usize).collect()
}

/// Returns the error that ends the stream of a rank.
async fn failure(handle: &StreamHandle, job: &Job, rank: u32) -> Result<Error, TestCaseError> {
    let mut stream = handle.open(&job.slice(rank), &job.read).await?;
    loop {
        let outcome = stream.next().await;
        match outcome {
            Ok(Some(_)) => {}
            Ok(None) => return Err(TestCaseError::fail(format!("rank {rank} got rows that it cannot get"))),
            Err(error) => {
                let beyond = stream.next().await?;
                prop_assert!(beyond.is_none(), "rank {rank} got a batch after an error");
                return Ok(error);
            }
        }
    }
}
