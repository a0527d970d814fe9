//! Units: runs of positions that are read at once.

use std::ops::Range;

use stoker_lake::Table;
use stoker_order::StreamOrder;
use stoker_types::Slice;

use crate::StreamPlan;
use crate::depth::Depth;
use crate::part_plan::PartSize;
use crate::phase::FirstUnit;

/// The size of a unit, in bytes, where the order has no windows and reads may have a high latency.
const UNIT_BYTES: u64 = 8 << 20;

/// The smallest number of such units that are read at once. Each is one or two requests, and another one begins when the
/// oldest one is there.
const UNITS_AT_ONCE: usize = 12;

/// The number of units that are read at once if they are windows or copies of resident rows: one begins while another
/// one finishes.
const LARGE_UNITS_AT_ONCE: usize = 2;

/// The same number for units of local files: few reads are then waited for at the end of each unit.
const LOCAL_UNITS_AT_ONCE: usize = 4;

/// The same number for units of large rows of local files. One unit is then always ready whose reads have not begun.
const CACHED_UNITS_AT_ONCE: usize = 3;

/// The size of a unit of local files for each reading thread, in bytes. The rows of such a unit, and the data kept for
/// them, stay in a processor's cache.
const CACHED_BYTES_PER_THREAD: u64 = 4 << 20;

/// The smallest number of units of local files that a stream reads ahead.
const LOCAL_UNITS_AHEAD: u64 = 6;

/// The number of batches, or of their parts, that a stream reads ahead at first: one that the consumer waits for, two that
/// are being read, and one that is begun when the reads of the others are almost done.
const PARTS_AHEAD: u64 = 4;

/// The size of a unit of rows that are resident when they are due, in bytes. Such a unit is a copy in memory.
const RESIDENT_UNIT_BYTES: u64 = 8 << 20;

/// The largest number of rows in a first batch that is read row by row from object stores. For more rows, that takes as
/// many requests as reading windows.
const FIRST_ROWS_MAX: u64 = 1_024;

/// The largest number of rows of one rank in a unit. The data kept for a row while it is read may be larger than a
/// narrow row.
pub(crate) const UNIT_ROWS_MAX: u64 = 1 << 18;

/// 2^64 over the golden ratio. Multiples of it, modulo 2^64, are spread evenly.
const GOLDEN_RATIO: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the number of rows of one rank in a unit of local files that is not a window.
pub(crate) fn rows_of_local_unit(plan: &StreamPlan, io_threads: usize) -> u64 {
    (local_unit_bytes(io_threads) / plan.row_bytes().max(1)).max(1)
}

fn local_unit_bytes(io_threads: usize) -> u64 {
    CACHED_BYTES_PER_THREAD.saturating_mul(io_threads as u64)
}

/// The rules that determine the sizes of units.
pub(crate) struct UnitSize {
    /// Whether units are whole windows unless the budget cuts them, so that the rows of a block are read together.
    by_window: bool,
    /// The size of a unit that is not a window, in bytes.
    bytes: u64,
    /// The number of such units that are read at once, and the number that are read ahead, both at first.
    at_once: usize,
    ahead: u64,
    row_bytes: u64,
    /// Whether the sizes of units vary between half of `bytes` and one and a half of them.
    ///
    /// Units of one size that begin together end together, because a store serves them at the same rate. Then nothing is
    /// transferred until the next ones are answered.
    varies: bool,
    /// The largest number of rows in a part. A unit has at least the rows of one part, whatever the budget is.
    part_rows_max: u64,
    /// The largest number of rows of the rank in a batch.
    batch_rows: u64,
    /// Whether the first batch has so few rows that they are best read row by row.
    first_is_small: bool,
}

impl UnitSize {
    /// Makes the rules for a slice whose batches are delivered in parts of `part_size`. `io_threads` threads read local
    /// files. `ranks_here` ranks, this one included, read their first batches in this process at the same time.
    pub fn new(plan: &StreamPlan, slice: &Slice, part_size: PartSize, io_threads: usize, ranks_here: u64) -> Self {
        let row_bytes = plan.row_bytes().max(1);
        let is_local = plan.tables().all(Table::is_local);
        let batch_rows = slice.rows_per_batch();
        Self {
            by_window: !plan.inner.reads_rows_alone() && !plan.inner.reads_only_clips(),
            bytes: if is_local { local_unit_bytes(io_threads) } else { UNIT_BYTES },
            at_once: match is_local {
                true if plan.inner.reads_rows_alone() => CACHED_UNITS_AT_ONCE,
                true => LOCAL_UNITS_AT_ONCE,
                false => UNITS_AT_ONCE,
            },
            ahead: if is_local { LOCAL_UNITS_AHEAD } else { UNITS_AT_ONCE as u64 },
            row_bytes,
            varies: !is_local,
            part_rows_max: part_size.rows_max(row_bytes),
            batch_rows,
            first_is_small: is_local || batch_rows.saturating_mul(ranks_here) <= FIRST_ROWS_MAX,
        }
    }

    /// Returns the rules for rows that are resident when they are due. No unit is a window then.
    pub fn resident(self) -> Self {
        Self { by_window: false, bytes: RESIDENT_UNIT_BYTES, varies: false, at_once: LARGE_UNITS_AT_ONCE, ..self }
    }

    /// Returns the size, in bytes, of the unit that begins at a position.
    fn bytes_at(&self, position: u64) -> u64 {
        if !self.varies {
            return self.bytes;
        }
        let fraction = position.wrapping_mul(GOLDEN_RATIO) >> 56;
        self.bytes / 2 + self.bytes / 256 * fraction
    }

    /// Returns how far a stream reads ahead that may hold `budget_bytes`, or `None` if its units are windows.
    pub fn depth(&self, order: &StreamOrder, budget_bytes: u64) -> Option<Depth> {
        if self.is_by_window(order) {
            return None;
        }
        let part_bytes = self.batch_rows.min(self.part_rows_max).saturating_mul(self.row_bytes);
        let bytes_ahead = self.bytes.saturating_mul(self.ahead).max(part_bytes.saturating_mul(PARTS_AHEAD));
        Some(Depth::new(bytes_ahead, budget_bytes))
    }

    /// Returns how many units are read at once with the smallest depth.
    pub fn at_once(&self, order: &StreamOrder) -> usize {
        if self.is_by_window(order) { LARGE_UNITS_AT_ONCE } else { self.at_once }
    }

    /// Returns whether units are whole windows of an order.
    pub fn is_by_window(&self, order: &StreamOrder) -> bool {
        self.by_window && order.window_positions(0).is_some()
    }

    /// Returns the unit in which a stream that has begun reads its first batch.
    pub fn first_unit(&self, order: &StreamOrder) -> FirstUnit {
        match () {
            () if self.first_is_small => FirstUnit::Rows,
            () if self.is_by_window(order) => FirstUnit::Window,
            () => FirstUnit::Batch,
        }
    }
}

/// Cuts the positions of a slice into units.
pub(crate) struct Units {
    next: u64,
    end: u64,
    world_size: u64,
    global_batch: u64,
    size: UnitSize,
}

impl Units {
    /// Cuts a slice of a stream of `num_rows` rows into units.
    pub fn new(slice: &Slice, num_rows: u64, size: UnitSize) -> Self {
        let steps = slice.num_steps(num_rows);
        let start = slice.positions(slice.first_step, num_rows).start;
        let end = steps.checked_sub(1).map_or(start, |last| slice.position_after(last, num_rows));
        Self {
            next: start.min(end),
            end,
            world_size: u64::from(slice.topology.world_size),
            global_batch: slice.global_batch(),
            size,
        }
    }

    /// Returns the position at which the next unit begins.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Returns the position at which the global batch ends that begins at the next unit.
    pub fn batch_end(&self) -> u64 {
        self.next.saturating_add(self.global_batch).min(self.end)
    }

    /// Returns the next unit, which ends at `end_max` at the latest, for a stream that may hold `budget_bytes`. The
    /// unit takes at most half of these bytes, or as many as one part of a batch.
    pub fn next(&self, order: &StreamOrder, budget_bytes: u64, end_max: Option<u64>) -> Option<Range<u64>> {
        if self.next >= self.end {
            return None;
        }
        let end = self.end_of_next(order);
        let whole = end_max.map_or(end, |end_max| end.min(end_max)) - self.next;
        let pieces = whole.div_ceil(self.positions_max(budget_bytes));
        Some(self.next..self.next + whole.div_ceil(pieces))
    }

    /// Returns the number of bytes that the next unit takes, together with the last batch that begins in it, for a
    /// stream that may hold `budget_bytes`. Returns `None` if the budget would cut the unit, and zero if there is no
    /// unit left.
    pub fn next_bytes(&self, order: &StreamOrder, budget_bytes: u64) -> Option<u64> {
        if self.next >= self.end {
            return Some(0);
        }
        let positions = self.end_of_next(order) - self.next;
        // The last batch that begins in the unit may end after it.
        let held = positions.saturating_add(self.global_batch).min(self.end - self.next);
        let bytes = held.div_ceil(self.world_size).saturating_mul(self.size.row_bytes);
        (positions <= self.positions_max(budget_bytes)).then_some(bytes)
    }

    /// Returns the position at which the next unit ends if nothing cuts it.
    fn end_of_next(&self, order: &StreamOrder) -> u64 {
        let UnitSize { by_window, row_bytes, .. } = self.size;
        let window = order.window_positions(self.next).filter(|_| by_window);
        let bytes = self.size.bytes_at(self.next);
        let bytes_end = || self.next.saturating_add((bytes / row_bytes).max(1).saturating_mul(self.world_size));
        window.map_or_else(bytes_end, |window| window.end).min(self.end)
    }

    /// Makes the next unit begin at this position: the end of the unit before it, or an earlier position if that unit
    /// was ended early.
    pub fn continue_at(&mut self, position: u64) {
        self.next = position;
    }

    /// Returns the largest number of positions in a unit, over all ranks.
    fn positions_max(&self, budget_bytes: u64) -> u64 {
        let rows_min = self.size.batch_rows.min(self.size.part_rows_max);
        let rows = (budget_bytes / 2 / self.size.row_bytes).max(rows_min);
        rows.clamp(1, UNIT_ROWS_MAX).saturating_mul(self.world_size)
    }
}
