//! Units: runs of positions that are read at once.

use std::ops::Range;

use stoker_lake::Table;
use stoker_order::StreamOrder;
use stoker_types::Slice;

use crate::StreamPlan;
use crate::part_plan::PartSize;

/// Bytes of a unit where the order has no windows and reads may take long.
const UNIT_BYTES: u64 = 64 << 20;

/// Bytes of a unit of local files for each thread that reads: its rows, and what is kept for them, stay in a processor's cache.
const CACHED_BYTES_PER_THREAD: u64 = 4 << 20;

/// Rows of first batches that are read one by one from object stores, at most: more of them take as many requests as windows.
const FIRST_ROWS_MAX: u64 = 1_024;

/// Rows of a unit at most, over the rows of one rank: what is kept for a row while it is read may be more than a narrow row.
pub(crate) const UNIT_ROWS_MAX: u64 = 1 << 18;

/// Rows of a unit of local files that is no window.
pub(crate) fn rows_of_local_unit(plan: &StreamPlan, io_threads: usize) -> u64 {
    (local_unit_bytes(io_threads) / plan.row_bytes().max(1)).max(1)
}

fn local_unit_bytes(io_threads: usize) -> u64 {
    CACHED_BYTES_PER_THREAD.saturating_mul(io_threads as u64)
}

/// How large units are.
pub(crate) struct UnitSize {
    /// No unit is smaller than a window for another reason than the budget, so that the rows of a block are read together.
    by_window: bool,
    /// Bytes of a unit that is no window.
    bytes: u64,
    row_bytes: u64,
    /// A unit takes a part at least, whatever the budget.
    part_rows_max: u64,
    /// Whether the rows of the first batch are so few that they are best read one by one.
    first_is_small: bool,
}

impl UnitSize {
    /// Units of a slice whose batches come in parts. Local files are read by so many threads. So many ranks, this one included, read
    /// their first batches here at the same time.
    pub fn new(plan: &StreamPlan, slice: &Slice, part_size: PartSize, io_threads: usize, ranks_here: u64) -> Self {
        let row_bytes = plan.row_bytes().max(1);
        let is_local = plan.tables().all(Table::is_local);
        let first_rows = slice.global_batch().div_ceil(u64::from(slice.topology.world_size));
        Self {
            by_window: !plan.inner.reads_rows_alone(),
            bytes: if is_local { local_unit_bytes(io_threads) } else { UNIT_BYTES },
            row_bytes,
            part_rows_max: part_size.rows_max(row_bytes),
            first_is_small: is_local || first_rows.saturating_mul(ranks_here) <= FIRST_ROWS_MAX,
        }
    }

    /// Whether the rows of the first batch are there sooner one by one than with what lies around them.
    pub fn is_first_small(&self) -> bool {
        self.first_is_small
    }

    /// Whether units are whole windows of an order.
    pub fn is_by_window(&self, order: &StreamOrder) -> bool {
        self.by_window && order.window_positions(0).is_some()
    }
}

/// Cuts the positions of a slice into units.
pub(crate) struct Units {
    next: u64,
    end: u64,
    world_size: u64,
    global_batch: u64,
    size: UnitSize,
    /// Where the first global batch ends.
    first_end: u64,
    /// Whether units end with the first batch, so that it is there soon. They always do where units are no windows.
    first_alone: bool,
}

impl Units {
    /// Units of a slice of a stream of `num_rows` rows.
    pub fn new(slice: &Slice, num_rows: u64, size: UnitSize) -> Self {
        let steps = slice.num_steps(num_rows);
        let start = slice.positions(slice.first_step, num_rows).start;
        let end = steps.checked_sub(1).map_or(start, |last| slice.position_after(last, num_rows));
        Self {
            next: start.min(end),
            end,
            world_size: u64::from(slice.topology.world_size),
            global_batch: slice.global_batch(),
            first_end: start.saturating_add(slice.global_batch()).min(end),
            first_alone: size.first_is_small,
            size,
        }
    }

    /// Lets the first unit end with the first batch.
    pub fn read_first_alone(&mut self) {
        self.first_alone = true;
    }

    /// The next unit. It takes at most half of the bytes that the stream may hold now, or a part of a batch.
    pub fn next(&mut self, order: &StreamOrder, budget_bytes: u64) -> Option<Range<u64>> {
        let unit = self.peek(order, budget_bytes)?;
        self.next = unit.end;
        Some(unit)
    }

    /// What the next unit is, if the stream's part of the budget stays as it is.
    pub fn peek(&self, order: &StreamOrder, budget_bytes: u64) -> Option<Range<u64>> {
        if self.next >= self.end {
            return None;
        }
        let whole = self.end_of_next(order) - self.next;
        let pieces = whole.div_ceil(self.positions_max(budget_bytes));
        Some(self.next..self.next + whole.div_ceil(pieces))
    }

    /// Bytes that the next unit takes, with the last batch that begins in it, for a stream that may hold so many; `None` where it would be
    /// cut. Zero where there is no unit left.
    pub fn next_bytes(&self, order: &StreamOrder, budget_bytes: u64) -> Option<u64> {
        if self.next >= self.end {
            return Some(0);
        }
        let positions = self.end_of_next(order) - self.next;
        // The last batch that begins in the unit may end behind it.
        let held = positions.saturating_add(self.global_batch).min(self.end - self.next);
        let bytes = held.div_ceil(self.world_size).saturating_mul(self.size.row_bytes);
        (positions <= self.positions_max(budget_bytes)).then_some(bytes)
    }

    /// Whether the first global batch was cut off, as a whole.
    pub fn is_after_first(&self) -> bool {
        self.next >= self.first_end
    }

    /// Where the next unit ends, if the budget does not cut it.
    fn end_of_next(&self, order: &StreamOrder) -> u64 {
        let UnitSize { by_window, bytes, row_bytes, .. } = self.size;
        let window = order.window_positions(self.next).filter(|_| by_window);
        let bytes_end = || self.next.saturating_add((bytes / row_bytes).max(1).saturating_mul(self.world_size));
        let end = window.as_ref().map_or_else(bytes_end, |window| window.end).min(self.end);
        match self.next < self.first_end && (window.is_none() || self.first_alone) {
            true => end.min(self.first_end),
            false => end,
        }
    }

    /// Begins the next unit at this position: the end of the last one, or before it where that was cut.
    pub fn continue_at(&mut self, position: u64) {
        self.next = position;
    }

    /// Positions of a unit at most, over all ranks.
    fn positions_max(&self, budget_bytes: u64) -> u64 {
        let rows_min = self.global_batch.div_ceil(self.world_size).min(self.size.part_rows_max);
        let rows = (budget_bytes / 2 / self.size.row_bytes).max(rows_min);
        rows.clamp(1, UNIT_ROWS_MAX).saturating_mul(self.world_size)
    }
}
