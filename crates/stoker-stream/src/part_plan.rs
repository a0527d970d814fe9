//! Divides the rows of batches into parts.
//!
//! ```text
//! positions of a global batch   |            rows             |
//! a rank's share of it          |0   1   2   3   4   5   6   7| padding 8 9 10 11
//! parts of three rows           |-----------|-----------|--------- ... ----|-----
//! ```
//!
//! The positions of a part begin with that of its first row, and end where those of the next part begin. Padding
//! repeats rows of its batch and has no positions of its own. A part that has only padding is therefore at the end of
//! its batch and has an empty range of positions.

use std::ops::Range;

use stoker_types::{Share, Slice};

use crate::plan::PlanInner;
use crate::unit::UNIT_ROWS_MAX;

/// The size of the parts of batches.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartSize {
    /// Each batch is one part.
    Batch,
    /// A part has at most this number of bytes, or one row.
    Bytes(u64),
}

impl PartSize {
    /// Returns the largest number of rows in a part.
    pub fn rows_max(self, row_bytes: u64) -> u64 {
        match self {
            PartSize::Batch => u64::MAX,
            PartSize::Bytes(bytes) => (bytes / row_bytes.max(1)).max(1),
        }
    }

    /// Returns whether little is prefetched, so that rows are still in a processor's cache when the consumer takes
    /// their part. Rows that are best read by windows do not stay in the cache, whatever the size of the parts is.
    pub fn stays_cached(self, plan: &PlanInner) -> bool {
        match self {
            PartSize::Batch => false,
            PartSize::Bytes(_) => plan.reads_rows_alone(),
        }
    }
}

/// The rows that a part has of a batch.
#[derive(Clone, Debug)]
pub(crate) struct PartPlan {
    /// The number of the part, counted from the first part of the stream.
    pub number: u64,
    /// The number of the global batch.
    pub step: u64,
    /// The rank's share of the batch.
    pub share: Share,
    /// The range of rows of the share that are in the part.
    pub rows: Range<u64>,
    /// The range of positions that belongs to the part. Once all positions before its end are read, all rows of the
    /// part are read.
    pub positions: Range<u64>,
}

impl PartPlan {
    pub fn num_rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// Returns the positions of the part's rows from `row` on, without padding, in ascending order.
    pub fn positions_from(&self, row: u64) -> impl Iterator<Item = u64> + Clone + '_ {
        let end = self.rows.end.min(self.share.num_valid);
        (self.rows.start + row..end).map(|row| self.share.position(row))
    }

    /// Returns the positions of the part's rows from `row` on, up to the first one that is not before `end`. Padding
    /// repeats positions of its batch, most of them earlier ones, and is read with the last of them.
    pub fn positions_before(&self, row: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        (self.rows.start + row..self.rows.end).map(|row| self.share.position(row)).take_while(move |at| *at < end)
    }

    /// Returns whether the part must be read after a unit in which `num_rows_before` rows precede it. Only a part of
    /// padding may be put off: narrow rows take little memory in the budget, but more while they are read.
    pub fn is_put_off(&self, num_rows_before: u64) -> bool {
        self.positions.is_empty() && num_rows_before >= UNIT_ROWS_MAX
    }

    /// Returns whether some of the part's rows can be read once the positions of this unit, and those of all parts
    /// before it, are read.
    pub fn begins_in(&self, unit: &Range<u64>) -> bool {
        let start = self.positions.start;
        start < unit.end || start == unit.end && self.positions.is_empty()
    }
}

/// Iterates over the parts of a slice, in order.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    slice: Slice,
    /// The number of rows in an epoch of the stream.
    num_rows: u64,
    /// The largest number of rows in a part.
    rows_max: u64,
    num_steps: u64,
    next_step: u64,
    /// The index, in the rank's share of its batch, of the first row of the next part.
    next_row: u64,
    next_number: u64,
}

impl Parts {
    /// Makes the parts of a slice of a stream of `num_rows` rows. Each part has at most `rows_max` rows.
    pub fn new(slice: Slice, num_rows: u64, rows_max: u64) -> Self {
        let (num_steps, next_step) = (slice.num_steps(num_rows), slice.first_step);
        Self { slice, num_rows, rows_max: rows_max.max(1), num_steps, next_step, next_row: 0, next_number: 0 }
    }
}

impl Iterator for Parts {
    type Item = PartPlan;

    fn next(&mut self) -> Option<PartPlan> {
        let (step, number) = (self.next_step, self.next_number);
        if step >= self.num_steps {
            return None;
        }
        let share = self.slice.share(step, self.num_rows);
        let batch = self.slice.positions(step, self.num_rows);
        // A batch has as few parts as possible, all of the same size, so that their memory can be used again.
        let num_parts = share.num_rows.div_ceil(self.rows_max).max(1);
        let start = self.next_row;
        let end = start.saturating_add(share.num_rows.div_ceil(num_parts)).min(share.num_rows);
        let border = |row: u64| if row < share.num_valid { share.position(row) } else { batch.end };
        let first = if start == 0 { batch.start } else { border(start) };
        let positions = first..border(end);
        self.next_number += 1;
        self.next_row = end;
        if end >= share.num_rows {
            self.next_step += 1;
            self.next_row = 0;
        }
        Some(PartPlan { number, step, share, rows: start..end, positions })
    }
}
