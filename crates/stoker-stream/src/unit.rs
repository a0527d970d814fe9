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
    /// Positions of a unit at most, over all ranks.
    positions_max: u64,
    /// Positions of the first unit: one global batch, so that it is there soon.
    first: Option<u64>,
    by_window: bool,
}

impl Units {
    /// Units of a slice whose rows take `row_bytes`; a unit takes at most half of `budget_bytes`. With `by_window` no unit
    /// is smaller than a window for another reason, so that the rows of a block are read together.
    pub fn new(slice: &Slice, num_rows: u64, row_bytes: u64, budget_bytes: u64, by_window: bool) -> Self {
        let steps = slice.num_steps(num_rows);
        let start = slice.positions(slice.first_step, num_rows).start;
        let end = steps.checked_sub(1).map_or(start, |last| slice.position_after(last, num_rows));
        let world = u64::from(slice.topology.world_size);
        let rows_max = (budget_bytes / 2 / row_bytes.max(1)).clamp(1, UNIT_ROWS_MAX);
        let positions_max = rows_max.saturating_mul(world).max(1);
        Self { next: start.min(end), end, positions_max, first: Some(slice.global_batch()), by_window }
    }

    /// The next unit.
    pub fn next(&mut self, order: &StreamOrder, row_bytes: u64, world: u64) -> Option<Range<u64>> {
        if self.next >= self.end {
            return None;
        }
        let window_end = match order.window_positions(self.next) {
            Some(window) if self.by_window => window.end,
            _ => self.next.saturating_add((UNIT_BYTES / row_bytes.max(1)).max(1).saturating_mul(world)),
        };
        let mut end = window_end.min(self.end);
        if let Some(first) = self.first.take() {
            end = end.min(self.next.saturating_add(first));
        }
        let parts = (end - self.next).div_ceil(self.positions_max);
        end = self.next + (end - self.next).div_ceil(parts);
        let unit = self.next..end;
        self.next = end;
        Some(unit)
    }
}
