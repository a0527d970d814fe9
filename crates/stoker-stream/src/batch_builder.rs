//! Batches under construction.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat;
use stoker_chunks::{BufferPool, Slots, to_array};
use stoker_types::{Cursor, Share, Slice};

use crate::budget::Held;
use crate::plan::PlanInner;
use crate::read::Damage;
use crate::source::ColumnPlan;
use crate::{Batch, Error, Result, Stalls, Substitution};

/// A batch whose rows are being read.
pub(crate) struct BatchBuilder {
    pub step: u64,
    pub share: Share,
    /// Rows of the share that no unit has taken up yet.
    pub next_row: u64,
    /// For each column that is read by chunk scan, its memory.
    dense: Vec<Option<Arc<Slots>>>,
    /// For each other column, the parts that the units brought, in order.
    light: Vec<Vec<ArrayRef>>,
    addrs: Vec<Vec<u64>>,
    /// Rows of the batch that were added.
    num_added: usize,
    substituted: Vec<Substitution>,
}

/// A finished batch and the room that it holds until it is taken.
pub(crate) struct Delivered {
    pub batch: Batch,
    pub bytes: u64,
    /// What the time of the unit that completed it went to.
    pub spans: Stalls,
    pub _held: Option<Held>,
}

/// What one unit brings to one batch, besides the rows that go into its slots.
pub(crate) struct Part {
    pub step: u64,
    /// One array for each column that is not dense, in order of columns; `None` for dense ones.
    pub light: Vec<Option<ArrayRef>>,
    pub addrs: Vec<Vec<u64>>,
    /// Which rows are bad, by their place in the part.
    pub bad: BTreeMap<usize, Damage>,
    /// Where the part's rows lie in the unit.
    pub range: Range<usize>,
}

impl BatchBuilder {
    pub fn new(plan: &PlanInner, slice: &Slice, step: u64, pool: &BufferPool) -> Self {
        let share = slice.share(step, plan.spec.num_rows);
        let rows = share.num_rows as usize;
        let slots = |column: &ColumnPlan| match column {
            ColumnPlan::Dense { row_bytes, .. } => Some(Slots::new(pool, rows, *row_bytes)),
            ColumnPlan::Table { .. } | ColumnPlan::RowSet { .. } => None,
        };
        Self {
            step,
            share,
            next_row: 0,
            dense: plan.columns().iter().map(slots).collect(),
            light: vec![Vec::new(); plan.columns().len()],
            addrs: vec![Vec::new(); plan.num_tables()],
            num_added: 0,
            substituted: Vec::new(),
        }
    }

    /// The memory of a dense column.
    pub fn slots(&self, column: usize) -> Option<&Arc<Slots>> {
        self.dense[column].as_ref()
    }

    pub fn add(&mut self, part: Part) {
        for (parts, array) in self.light.iter_mut().zip(part.light) {
            parts.extend(array);
        }
        for (addrs, more) in self.addrs.iter_mut().zip(part.addrs) {
            addrs.extend(more);
        }
        self.num_added += part.range.len();
    }

    /// Rows that were added so far: where the next part's rows lie in the batch.
    pub fn num_added(&self) -> usize {
        self.num_added
    }

    /// Notes that a row of the batch stands for a bad one.
    pub fn note(&mut self, substitution: Substitution) {
        self.substituted.push(substitution);
    }

    /// The batch, once all its rows are there.
    pub fn finish(self, plan: &PlanInner, slice: &Slice, schema: &SchemaRef) -> Result<(Batch, u64)> {
        let rows = self.share.num_rows as usize;
        let mut columns = Vec::with_capacity(schema.fields().len());
        for ((field, slots), parts) in schema.fields().iter().zip(self.dense).zip(self.light) {
            let array = match slots {
                Some(slots) => to_array(field.data_type(), rows, slots.freeze()?)?,
                None => match parts.as_slice() {
                    [] => arrow_array::new_empty_array(field.data_type()),
                    [one] => one.clone(),
                    many => concat(&many.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(Error::arrow)?,
                },
            };
            columns.push(array);
        }
        let bytes = columns.iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let data = RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(Error::arrow)?;
        let position = slice.position_after(self.step, plan.spec.num_rows);
        let cursor = Cursor { stream_id: plan.stream_id, epoch: slice.epoch, position };
        let num_valid = self.share.num_valid as usize;
        let (row_addrs, substituted) = (self.addrs, self.substituted);
        Ok((Batch { step: self.step, cursor, data, num_valid, row_addrs, substituted }, bytes))
    }
}

/// Batches in order of steps, the oldest first.
pub(crate) type Builders = VecDeque<BatchBuilder>;
