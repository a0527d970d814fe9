//! Assembles the parts of batches.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::concat::concat;
use stoker_batch::{BufferPool, Held, Part, Slots, Substitution};
use stoker_chunks::to_array;
use stoker_types::{Cursor, Slice, Stalls, to_usize};

use crate::part_plan::PartPlan;
use crate::plan::PlanInner;
use crate::read::Damage;
use crate::source::ColumnPlan;
use crate::{Error, Result};

/// A part whose rows are being read.
pub(crate) struct PartBuilder {
    pub part: PartPlan,
    /// The number of rows of the part that units have begun to read.
    pub num_taken_up: u64,
    /// The memory of each column that is read by chunk scan.
    dense: Vec<Option<Arc<Slots>>>,
    /// For each other column, the arrays that the units returned, in order.
    light: Vec<Vec<ArrayRef>>,
    addrs: Vec<Vec<u64>>,
    /// The number of rows that were added to the part.
    num_added: usize,
    substituted: Vec<Substitution>,
}

/// A finished part, and the memory that it holds until the consumer takes it.
pub(crate) struct Delivered {
    pub part: Part,
    pub bytes: u64,
    /// Where the time of the unit went that completed the part.
    pub spans: Stalls,
    pub _held: Option<Held>,
}

/// The rows that one unit adds to one part, without the dense columns, which were read into the part's slots.
pub(crate) struct Piece {
    /// The number of the part.
    pub part: u64,
    /// The columns. A column that is not dense has one array, a dense column has `None`.
    pub light: Vec<Option<ArrayRef>>,
    pub addrs: Vec<Vec<u64>>,
    /// The bad rows, by their index in the piece.
    pub bad: BTreeMap<usize, Damage>,
    /// The range of the piece's rows in the unit.
    pub range: Range<usize>,
}

impl PartBuilder {
    pub fn try_new(plan: &PlanInner, part: PartPlan, pool: &BufferPool) -> Result<Self> {
        let rows = to_usize(part.num_rows());
        let slots = |column: &ColumnPlan| match column {
            ColumnPlan::Dense { row_bytes, .. } => Slots::try_new(pool, rows, *row_bytes).map(Some),
            ColumnPlan::Table { .. } | ColumnPlan::RowSet { .. } | ColumnPlan::Packed => Ok(None),
        };
        Ok(Self {
            part,
            num_taken_up: 0,
            dense: plan.columns().iter().map(slots).collect::<stoker_batch::Result<_>>()?,
            light: vec![Vec::new(); plan.columns().len()],
            addrs: vec![Vec::new(); plan.num_tables()],
            num_added: 0,
            substituted: Vec::new(),
        })
    }

    /// Returns the memory of a dense column.
    pub fn slots(&self, column: usize) -> Option<&Arc<Slots>> {
        self.dense[column].as_ref()
    }

    pub fn add(&mut self, piece: Piece) {
        for (pieces, array) in self.light.iter_mut().zip(piece.light) {
            pieces.extend(array);
        }
        for (addrs, more) in self.addrs.iter_mut().zip(piece.addrs) {
            addrs.extend(more);
        }
        self.num_added += piece.range.len();
    }

    /// Returns the number of rows that were added so far. It is the index in the part of the next piece's first row.
    pub fn num_added(&self) -> usize {
        self.num_added
    }

    /// Records that a row of the part replaces a bad row.
    pub fn note(&mut self, row: usize, row_addrs: Vec<u64>, reason: String) {
        let row = to_usize(self.part.rows.start) + row;
        self.substituted.push(Substitution { row, row_addrs, reason });
    }

    /// Returns the part and its size in bytes. All of its rows must have been added.
    pub fn finish(self, plan: &PlanInner, slice: &Slice, schema: &SchemaRef) -> Result<(Part, u64)> {
        let PartPlan { step, share, rows, .. } = self.part;
        let first_row = to_usize(rows.start);
        let num_rows = to_usize(rows.end) - first_row;
        let mut columns = Vec::with_capacity(schema.fields().len());
        for ((field, slots), pieces) in schema.fields().iter().zip(self.dense).zip(self.light) {
            let array = match slots {
                Some(slots) => to_array(field.data_type(), num_rows, slots.freeze()?)?,
                None => match pieces.as_slice() {
                    [] => arrow_array::new_empty_array(field.data_type()),
                    [one] => one.clone(),
                    many => concat(&many.iter().map(AsRef::as_ref).collect::<Vec<_>>()).map_err(Error::arrow)?,
                },
            };
            columns.push(array);
        }
        let bytes = columns.iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum();
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let data = RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(Error::arrow)?;
        let position = slice.position_after(step, plan.spec.num_rows);
        let part = Part {
            step,
            cursor: Cursor { stream_id: plan.stream_id, epoch: slice.epoch, position },
            num_rows: to_usize(share.num_rows),
            num_valid: to_usize(share.num_valid),
            first_row,
            data,
            row_addrs: self.addrs,
            substituted: self.substituted,
        };
        Ok((part, bytes))
    }
}

/// Parts in order, the oldest first.
pub(crate) type Builders = VecDeque<PartBuilder>;
