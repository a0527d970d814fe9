//! What a logged run leaves in the lake: entries of the run log, and bad rows.

use stoker_batch::{BAD_ROWS_TABLE, RUN_LOG_TABLE};
use stoker_types::calls::{BoxedAnswers, Call, LogBadRows, LogRun, WriteKey, encode_call};
use stoker_types::{BadRowEntry, Digest, Receipt, RunEntry, RunId, StreamSpec};

use crate::session::inner::Inner;
use crate::session::{BatchKey, Session, Turn};
use crate::{Error, Lake, Result};

/// The address for a table that does not supply a row.
const NO_ROW: u64 = u64::MAX;

impl Session {
    /// Writes an entry of the run log at the beginning of a turn, if the steps do not follow from the entry before. Only
    /// rank 0 writes. Costs one commit for each entry.
    pub(super) async fn log_turn(&self, turn: Turn) -> Result<()> {
        let Some(entry) = self.with(|inner| inner.turn_entry(turn)) else { return Ok(()) };
        self.write_once(RUN_LOG_TABLE, |write_key| LogRun { entry: entry.clone(), write_key }).await?;
        self.with(|inner| {
            // If another thread ended the turn meanwhile, the current one may still begin where the entry says.
            if inner.turn_entry(inner.kept.turn).as_ref() == Some(&entry) {
                inner.kept.event = None;
                inner.kept.end_write(RUN_LOG_TABLE);
            }
        });
        Ok(())
    }

    /// Prepares for counting a batch. Before the last batch of an epoch of a logged run, it adds the rows that this rank
    /// substituted in the epoch to the table of bad rows. For other batches it does nothing. Until the batch is counted,
    /// further calls do not add the rows again.
    ///
    /// # Errors
    /// Storage errors; a lake that cannot be written.
    pub async fn finish(&self, key: BatchKey) -> Result<()> {
        let rows = if key.is_last { self.with(|inner| inner.bad_rows(key)) } else { Vec::new() };
        if rows.is_empty() {
            return Ok(());
        }
        self.write_once(BAD_ROWS_TABLE, |write_key| LogBadRows { bad_rows: rows.clone(), write_key }).await
    }

    /// Writes to a table of logs. A write that was cancelled or failed may have been done: when the session or a copy of
    /// it repeats this write, the write has the same key, so that it is done once.
    async fn write_once<C: Call>(&self, table: &str, request: impl Fn(Option<WriteKey>) -> C) -> Result<()>
    where
        dyn Lake: BoxedAnswers<C, Error = Error>,
    {
        let content = Digest::of(&encode_call(&request(None))?);
        let pending = self.with(|inner| inner.kept.pending_key(table, content));
        let may_be_done = pending.is_some();
        let key = match pending {
            Some(key) => key,
            None => {
                let key = self.connection.write_key(table).await?;
                self.with(|inner| inner.kept.begin_write(table, content, key))
            }
        };
        self.connection.write(request, key, may_be_done).await
    }
}

impl Inner {
    fn turn_entry(&self, turn: Turn) -> Option<RunEntry> {
        let (kept, options) = (&self.kept, &self.kept.options);
        if kept.turn != turn || options.topology.rank != 0 {
            return None;
        }
        Some(RunEntry {
            run_id: options.run_id.clone()?,
            event: kept.event?,
            stream_id: self.spec.stream_id(),
            step: kept.progress.first_step,
            epoch: kept.progress.epoch,
            position: kept.progress.origin,
            global_batch: kept.progress.log.last()?.global_batch,
            last_batch: options.batching.last,
            world_size: options.topology.world_size,
            time_micros: 0,
        })
    }

    /// Returns the bad rows of the epoch so far, the batch with this key included.
    fn bad_rows(&self, key: BatchKey) -> Vec<BadRowEntry> {
        let Some(run_id) = self.kept.options.run_id.as_ref().filter(|_| self.kept.turn == key.turn) else {
            return Vec::new();
        };
        // The batch is counted only after the rows are written, so that a failure repeats it in full.
        let mut counted = self.open.as_ref().map(|open| open.delivery.clone());
        counted.iter_mut().for_each(|delivery| delivery.got(key.step.saturating_add(1)));
        let running = counted.as_ref().map(|delivery| delivery.receipt());
        let receipt = self.kept.receipts.document(self.spec.stream_id(), running);
        entries(run_id, &self.spec, self.kept.progress.epoch, receipt)
    }
}

/// Returns one entry for each table that supplies a bad row of an epoch.
fn entries(run_id: &RunId, spec: &StreamSpec, epoch: u64, receipt: Receipt) -> Vec<BadRowEntry> {
    let stream_id = receipt.stream_id;
    let parts = receipt.parts.into_iter().filter(|part| part.epoch == epoch);
    let mut entries = Vec::new();
    for row in parts.flat_map(|part| part.substituted) {
        for (table, row_addr) in spec.tables().zip(row.row_addrs) {
            if row_addr != NO_ROW {
                entries.push(BadRowEntry {
                    run_id: run_id.clone(),
                    stream_id,
                    epoch,
                    position: row.position,
                    table: table.table.clone(),
                    version: table.version,
                    row_addr,
                    reason: row.reason.clone(),
                });
            }
        }
    }
    entries
}
