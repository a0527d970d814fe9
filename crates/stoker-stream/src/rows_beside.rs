//! Rows of windows, for a consumer that looks for substitutes itself.
//!
//! A row without its checksum is found where it is read, and [`substitute`](crate::substitute) replaces it there. A row
//! whose images cannot be decoded is found by the consumer, who may have no other access to rows that are not its own.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use stoker_batch::{RowsBeside, SlotMut, Slots, Window};
use stoker_chunks::{ChunkScan, to_array};
use stoker_order::Visit;
use stoker_types::ReadOptions;
use stoker_types::calls::Beside;

use crate::found_rows::FoundRows;
use crate::options::chunk_scan;
use crate::read::{Reader, Rows, read_rows};
use crate::unit_clock::UnitClock;
use crate::{Error, Resources, Result, StreamPlan};

/// The largest size of the rows that one call reads, in bytes, estimated by [`StreamPlan::row_bytes`]. A call reads at
/// least one row.
const BYTES_MAX: u64 = 8 << 20;

/// The largest number of rows that one call reads.
const ROWS_MAX: u64 = 1_024;

impl StreamPlan {
    /// Reads rows of the windows of an epoch from storage, without caches of chunks. It reads the first rows of
    /// `wanted`, up to 8 MiB or 1,024 rows, but at least one. Their memory is reserved in the resources' budget.
    ///
    /// # Errors
    /// `InvalidRequest` for an empty request, and for positions and offsets that the stream does not have; errors of
    /// reading.
    pub async fn rows_beside(
        &self,
        resources: &Resources,
        epoch: u64,
        wanted: &[Beside],
        options: &ReadOptions,
    ) -> Result<RowsBeside> {
        let scan = chunk_scan(options, resources);
        let plan = self.estimated(&scan).await;
        let num_rows = (BYTES_MAX / plan.row_bytes()).clamp(1, ROWS_MAX);
        let visits = self.visits_beside(epoch, wanted.iter().take(num_rows as usize))?;
        let positions: Vec<u64> = wanted.iter().take(visits.len()).map(|row| row.position).collect();
        let bytes = plan.row_bytes().saturating_mul(visits.len() as u64);
        let held = resources.memory().join(bytes).reserve(bytes).await;
        let (Rows { light, addrs, bad }, dense) = plan.read_visits(&scan, epoch, &positions, &visits).await?;
        let schema = self.schema();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(light.len());
        for ((field, array), slots) in schema.fields().iter().zip(light).zip(dense) {
            let missing = || Error::Internal { reason: format!("column {} was not read", field.name()) };
            columns.push(match slots {
                Some(slots) => to_array(field.data_type(), visits.len(), slots.freeze()?)?,
                None => array.ok_or_else(missing)?,
            });
        }
        let row_count = RecordBatchOptions::new().with_row_count(Some(visits.len()));
        let data = RecordBatch::try_new_with_options(schema, columns, &row_count).map_err(Error::arrow)?;
        let named = bad.into_iter().map(|(row, damage)| {
            let reason = format!("{}: {}", self.table_name(damage.table), damage.reason);
            (row, reason)
        });
        let (bad, io) = (named.collect(), scan.stats().totals());
        Ok(RowsBeside { data, row_addrs: addrs, bad, io, held: Some(held) })
    }

    /// Returns the visits of these rows in the orders of their sources.
    fn visits_beside<'a>(&self, epoch: u64, wanted: impl Iterator<Item = &'a Beside>) -> Result<Vec<Visit>> {
        let invalid = |what, reason: String| Error::from(stoker_types::Error::InvalidValue { what, reason });
        let (order, num_rows) = (self.inner.orders.epoch(epoch), self.num_rows());
        let mut visits = Vec::new();
        for Beside { position, offset } in wanted {
            if *position >= num_rows {
                let reason = format!("position {position} lies beyond the {num_rows} rows");
                return Err(invalid("position", reason));
            }
            let visit = order.visit(*position);
            let window = Window::of(&order, &visit);
            if *offset >= window.num_rows() {
                let reason = format!("row {offset} lies beyond the {} rows of its window", window.num_rows());
                return Err(invalid("offset", reason));
            }
            visits.push(order.visit_beside(&visit, window.row(*offset).position));
        }
        match visits.is_empty() {
            true => Err(invalid("rows", "the request names no rows".into())),
            false => Ok(visits),
        }
    }

    /// Reads rows that are delivered at these positions of an epoch. Returns them with the memory of their dense columns.
    async fn read_visits(
        &self,
        scan: &ChunkScan,
        epoch: u64,
        positions: &[u64],
        visits: &[Visit],
    ) -> Result<(Rows, Vec<Option<Arc<Slots>>>)> {
        let columns = self.inner.columns().iter();
        let slots = |row_bytes| Slots::try_new(scan.pool(), visits.len(), row_bytes);
        let memory = columns.map(|column| column.dense_row_bytes().map(slots).transpose());
        let memory = memory.collect::<stoker_batch::Result<Vec<Option<Arc<Slots>>>>>()?;
        let num_rows = visits.len();
        let claim = |slots: &Option<Arc<Slots>>| -> stoker_batch::Result<Vec<SlotMut>> {
            slots.iter().flat_map(|slots| (0..num_rows).map(move |row| slots.claim(row))).collect()
        };
        let claims = memory.iter().map(claim).collect::<stoker_batch::Result<_>>()?;
        let clock = UnitClock::start(scan.clock());
        let reader = Reader { plan: &self.inner, scan, clock: &clock, blocks: None, is_first: true };
        let found = FoundRows::of(&self.inner, visits).await?.delivered(epoch, positions.iter().copied());
        Ok((read_rows(reader, found, claims).await?, memory))
    }
}
