//! Units: runs of positions that are read at once.

use std::ops::Range;

use stoker_order::StreamOrder;
use stoker_types::Slice;

/// Bytes of a unit where the order has no windows.
const UNIT_BYTES: u64 = 64 << 20;

/// Rows of a unit at most, over the rows of one rank: what is kept for a row while it is read may be more than a narrow row.
const UNIT_ROWS_MAX: u64 = 1 << 18;

/// Cuts the positions of a slice into units.
pub(crate) struct Units {
    next: u64,
    end: u64,
    row_bytes: u64,
    world_size: u64,
    global_batch: u64,
    /// The first unit is one global batch, so that it is there soon.
    is_first: bool,
    by_window: bool,
}

impl Units {
    /// Units of a slice whose rows take `row_bytes`. With `by_window` no unit is smaller than a window for another reason than
    /// the budget, so that the rows of a block are read together.
    pub fn new(slice: &Slice, num_rows: u64, row_bytes: u64, by_window: bool) -> Self {
        let steps = slice.num_steps(num_rows);
        let start = slice.positions(slice.first_step, num_rows).start;
        let end = steps.checked_sub(1).map_or(start, |last| slice.position_after(last, num_rows));
        Self {
            next: start.min(end),
            end,
            row_bytes: row_bytes.max(1),
            world_size: u64::from(slice.topology.world_size),
            global_batch: slice.global_batch(),
            is_first: true,
            by_window,
        }
    }

    /// The next unit. It takes at most half of the bytes that the stream may hold now, or a batch.
    pub fn next(&mut self, order: &StreamOrder, budget_bytes: u64) -> Option<Range<u64>> {
        if self.next >= self.end {
            return None;
        }
        let window_end = match order.window_positions(self.next) {
            Some(window) if self.by_window => window.end,
            _ => self.next.saturating_add((UNIT_BYTES / self.row_bytes).max(1).saturating_mul(self.world_size)),
        };
        let mut end = window_end.min(self.end);
        if std::mem::take(&mut self.is_first) {
            end = end.min(self.next.saturating_add(self.global_batch));
        }
        let parts = (end - self.next).div_ceil(self.positions_max(budget_bytes));
        end = self.next + (end - self.next).div_ceil(parts);
        let unit = self.next..end;
        self.next = end;
        Some(unit)
    }

    /// Begins the next unit at this position: the end of the last one, or before it where that was cut.
    pub fn continue_at(&mut self, position: u64) {
        self.next = position;
    }

    /// Positions of a unit at most, over all ranks.
    fn positions_max(&self, budget_bytes: u64) -> u64 {
        let rows = (budget_bytes / 2 / self.row_bytes).max(self.global_batch.div_ceil(self.world_size));
        rows.clamp(1, UNIT_ROWS_MAX).saturating_mul(self.world_size)
    }
}
