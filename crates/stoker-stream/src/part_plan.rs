//! Which rows the parts of batches have.
//!
//! ```text
//! positions of a global batch   |            rows             |
//! a rank's share of it          |0   1   2   3   4   5   6   7| padding 8 9 10 11
//! parts of three rows           |-----------|-----------|--------- ... ----|-----
//! ```
//!
//! The positions of a part begin with its first row, and end where those of the next part begin. Padding repeats rows of its batch,
//! and so has no positions of its own: a part of nothing but padding lies at the end of the batch, and takes no positions.

use std::ops::Range;

use stoker_types::{Share, Slice};

use crate::plan::PlanInner;
use crate::unit::UNIT_ROWS_MAX;

/// How large the parts of batches are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartSize {
    /// Each batch is one part.
    Batch,
    /// At most so many bytes, or one row.
    Bytes(u64),
}

impl PartSize {
    /// Rows of a part at most.
    pub fn rows_max(self, row_bytes: u64) -> u64 {
        match self {
            PartSize::Batch => u64::MAX,
            PartSize::Bytes(bytes) => (bytes / row_bytes.max(1)).max(1),
        }
    }

    /// Whether little is read ahead, so that rows are still in a processor's cache when their part is taken. Rows that are best
    /// read by windows are not, whatever the size of the parts.
    pub fn stays_cached(self, plan: &PlanInner) -> bool {
        match self {
            PartSize::Batch => false,
            PartSize::Bytes(_) => plan.reads_rows_alone(),
        }
    }
}

/// Which rows of which batch a part has.
#[derive(Clone, Debug)]
pub(crate) struct PartPlan {
    /// Counted from the first part of the stream.
    pub number: u64,
    /// The batch.
    pub step: u64,
    /// The rank's rows of the batch.
    pub share: Share,
    /// The rows of the share that are in the part.
    pub rows: Range<u64>,
    /// Where the part lies in the order. Once all positions before the end are read, so are the part's rows.
    pub positions: Range<u64>,
}

impl PartPlan {
    pub fn num_rows(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// The positions of its rows from one of them on, without padding; ascending.
    pub fn positions_from(&self, row: u64) -> impl Iterator<Item = u64> + Clone + '_ {
        let end = self.rows.end.min(self.share.num_valid);
        (self.rows.start + row..end).map(|row| self.share.position(row))
    }

    /// The positions of its rows from one of them on, as far as rows before a position are read. Padding repeats positions of its
    /// batch, mostly earlier ones; it is read with the last of them.
    pub fn positions_before(&self, row: u64, end: u64) -> impl Iterator<Item = u64> + '_ {
        (self.rows.start + row..self.rows.end).map(|row| self.share.position(row)).take_while(move |at| *at < end)
    }

    /// Whether it is read after a unit in which parts with so many rows begin before it. A part of nothing but padding is: narrow rows
    /// take little room in the budget, and more of it while they are read.
    pub fn is_put_off(&self, num_rows_before: u64) -> bool {
        self.positions.is_empty() && num_rows_before >= UNIT_ROWS_MAX
    }

    /// Whether some of its rows can be read with these positions, and those of all parts before it.
    pub fn begins_in(&self, unit: &Range<u64>) -> bool {
        let start = self.positions.start;
        start < unit.end || start == unit.end && self.positions.is_empty()
    }
}

/// The parts of a slice, in order.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    slice: Slice,
    /// Rows of the stream.
    num_rows: u64,
    /// Rows of a part at most.
    rows_max: u64,
    num_steps: u64,
    next_step: u64,
    /// The first row of the next part in its batch.
    next_row: u64,
    next_number: u64,
}

impl Parts {
    /// The parts of a slice of a stream of `num_rows` rows, of at most `rows_max` rows each.
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
        // As few parts as possible, of equal size: memory of that size is used again.
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
