//! Checks what the server writes for principals with the role `read`: logs of their own runs, about rows that exist.

use stoker_lake::Expense;
use stoker_session::{Error, Result};
use stoker_stream::own_run;
use stoker_types::{BadRowEntry, Principal, RunEntry};

use crate::state::ServerState;

/// The maximum length of the reason that a reader gives for a bad row, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// The number of objects of a commit to a log: rows, a transaction, a manifest.
const LOG_COMMIT_OBJECTS: u64 = 3;

/// The approximate size of a commit to a log in bytes, without its rows.
const LOG_COMMIT_BYTES: u64 = 16 << 10;

/// The approximate size of a row of a log in bytes.
const LOG_ROW_BYTES: u64 = 1 << 10;

impl ServerState {
    /// Checks that a principal may add an entry to the log of its run.
    ///
    /// # Errors
    /// A run that another principal began; a stream that was not planned.
    pub(crate) async fn check_run_entry(&self, principal: &Principal, entry: &RunEntry) -> Result<()> {
        match principal.run_owner() {
            Some(owner) => Ok(own_run(&self.engine_for(principal), &entry.run_id, entry.stream_id, owner).await?),
            None => Ok(()),
        }
    }

    /// Counts rows that a reader is about to add to a log against its allowance. Returns `None` for other principals.
    /// The caller keeps the expense after the commit; dropping it undoes the count.
    ///
    /// # Errors
    /// A reader whose allowance for the day is used up.
    pub(crate) fn spend_on_log(&self, principal: &Principal, num_rows: usize) -> Result<Option<Expense>> {
        let Some(allowance) = self.allowance(principal) else { return Ok(None) };
        let bytes = LOG_COMMIT_BYTES.saturating_add(LOG_ROW_BYTES.saturating_mul(num_rows as u64));
        Ok(Some(allowance.spend(LOG_COMMIT_OBJECTS, bytes)?))
    }

    /// Checks that a principal may add rows to the table of bad rows. A reader may add rows of its own runs only, and
    /// only rows that are at the given positions of their streams.
    ///
    /// # Errors
    /// A run that another principal began; a stream that was not planned; a row that is not at its position; a reason
    /// that is too long or has control characters.
    pub(crate) async fn check_bad_rows(&self, principal: &Principal, rows: &[BadRowEntry]) -> Result<()> {
        let Some(owner) = principal.run_owner() else { return Ok(()) };
        for of_stream in rows.chunk_by(|a, b| (&a.run_id, a.stream_id, a.epoch) == (&b.run_id, b.stream_id, b.epoch)) {
            let first = &of_stream[0];
            own_run(&self.engine_for(principal), &first.run_id, first.stream_id, owner).await?;
            let plan = self.plan_by_id(first.stream_id).await?;
            let positions: Vec<u64> = of_stream.iter().map(|row| row.position).collect();
            let addrs = plan.row_addrs(first.epoch, &positions).await?;
            let tables: Vec<_> = plan.tables().map(|table| table.snapshot()).collect();
            for (at, row) in of_stream.iter().enumerate() {
                let is_there = tables.iter().zip(&addrs).any(|(table, addrs)| {
                    (&table.table, table.version, addrs.get(at)) == (&row.table, row.version, Some(&row.row_addr))
                });
                if !is_there {
                    return Err(Error::invalid(format!(
                        "row {} of table {} is not at position {} of the stream",
                        row.row_addr, row.table, row.position
                    )));
                }
                if row.reason.chars().count() > REASON_CHARS_MAX || row.reason.contains(char::is_control) {
                    return Err(Error::invalid(format!(
                        "the reason of a bad row is one line of at most {REASON_CHARS_MAX} characters"
                    )));
                }
            }
        }
        Ok(())
    }
}
