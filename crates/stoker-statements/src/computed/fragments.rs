//! The fragments of a computed column: the one under way, its parts in the journal, and its end.

use arrow_array::RecordBatch;
use stoker_types::Moment;

use super::journal::{FinishedFragment, now_secs};
use super::parts::{with_addresses, without_addresses};
use super::{ColumnJob, ColumnMode};
use crate::{Error, Result};

/// The most bytes of values that wait to be recorded. A fragment with more is recorded when it is complete: its values come
/// so fast that they are soon computed again.
const PENDING_BYTES_MAX: usize = 256 << 20;

/// The fragment under way.
pub(super) struct Current {
    id: u32,
    begun_secs: u64,
    num_rows: u64,
    /// Values that were not recorded yet; `None` if they are not recorded any more.
    pending: Option<Vec<RecordBatch>>,
    pending_bytes: usize,
    num_parts: usize,
    /// The last row whose value is recorded.
    last_recorded: Option<u64>,
    recorded: Moment,
}

impl ColumnJob {
    /// Writes values of rows of one fragment.
    pub(super) async fn write_part(&mut self, addrs: &[u64], values: RecordBatch) -> Result<()> {
        let id = u32::try_from(addrs[0] >> 32).map_err(|_| Error::internal("a fragment id has more than 32 bits"))?;
        if self.current.as_ref().is_some_and(|current| current.id != id) {
            self.end_fragment().await?;
        }
        if self.current.is_none() {
            self.begin_fragment(id).await?;
        }
        let (Some(columns), Some(current)) = (&mut self.columns, &mut self.current) else {
            return Err(Error::internal("no fragment is under way"));
        };
        columns.write(addrs, &values).await?;
        current.num_rows += addrs.len() as u64;
        let Some(pending) = &mut current.pending else { return Ok(()) };
        current.pending_bytes += values.get_array_memory_size();
        if current.pending_bytes > PENDING_BYTES_MAX {
            (current.pending, current.pending_bytes) = (None, 0);
            return Ok(());
        }
        pending.push(with_addresses(addrs, &values)?);
        if self.environment.clock.since(current.recorded) >= self.column.checkpoint {
            let source = columns.source_of(id)?;
            self.journal.put_part(id, current.num_parts, pending, source, current.last_recorded).await?;
            pending.clear();
            current.pending_bytes = 0;
            current.num_parts += 1;
            current.last_recorded = addrs.last().copied();
            current.recorded = self.environment.clock.now();
        }
        Ok(())
    }

    /// Begins a fragment with the values that an earlier call recorded.
    async fn begin_fragment(&mut self, id: u32) -> Result<()> {
        let Some(columns) = &mut self.columns else { return Err(Error::internal("a fragment without columns")) };
        let known = self.parts.remove(&id).unwrap_or_default();
        for path in &known.paths {
            let Some(rows) = self.journal.part(path).await? else {
                let what = format!("computing {}", self.column.what());
                return Err(Error::refused(what, format!("another process removed _stoker/{path}: call it again")));
            };
            for rows in rows {
                let (addrs, values) = without_addresses(&rows)?;
                columns.write(addrs.values(), &values).await?;
            }
        }
        // Rows of a fragment that keep their old values are written together, when all new values are there.
        let is_recorded = self.column.mode != ColumnMode::Fill;
        self.current = Some(Current {
            id,
            begun_secs: now_secs(),
            num_rows: known.num_rows,
            pending: is_recorded.then(Vec::new),
            pending_bytes: 0,
            num_parts: known.paths.len(),
            last_recorded: known.last,
            recorded: self.environment.clock.now(),
        });
        Ok(())
    }

    /// Completes the fragment under way, and records it.
    async fn end_fragment(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let Some(columns) = &mut self.columns else { return Err(Error::internal("a fragment without columns")) };
        let draft = columns.end_fragment(current.id).await?;
        let finished = FinishedFragment { draft, num_rows: current.num_rows, begun_secs: current.begun_secs };
        self.journal.put_fragment(&finished).await
    }

    /// Completes the fragments of which all values are in parts of the journal, so that no further row of them came.
    pub(super) async fn end_recorded(&mut self) -> Result<()> {
        self.end_fragment().await?;
        let ids: Vec<u32> = self.parts.keys().copied().collect();
        for id in ids {
            self.begin_fragment(id).await?;
            self.has_values = true;
            self.end_fragment().await?;
        }
        Ok(())
    }
}
