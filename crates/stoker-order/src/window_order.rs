//! Order version 1: rows are permuted inside windows of each lane.

use std::ops::Range;

use stoker_types::to_usize;

use crate::{Key, Permutation};

/// Labels that keep the keys of different permutations distinct.
const BLOCKS: u64 = 1;
const WINDOW: u64 = 2;

/// The order of one epoch whose blocks are permuted, and whose rows are permuted inside windows of each lane.
#[derive(Clone, Debug)]
pub(crate) struct WindowOrder {
    num_rows: u64,
    num_lanes: u64,
    rows_per_block: u64,
    rows_per_window: u64,
    key: Key,
    /// The permutation of the blocks.
    permutation: Permutation,
    /// The index of the last block, which may be short, in the permuted sequence of blocks.
    short_slot: u64,
    short_rows: u64,
}

impl WindowOrder {
    /// Makes the order under the key of an epoch.
    pub fn new(num_rows: u64, num_lanes: u64, rows_per_block: u64, rows_per_window: u64, key: Key) -> Self {
        let num_blocks = num_rows.div_ceil(rows_per_block);
        let permutation = Permutation::new(num_blocks, key.with(BLOCKS));
        let (short_slot, short_rows) = match num_blocks.checked_sub(1) {
            Some(last) => (permutation.invert(last), num_rows - last * rows_per_block),
            None => (0, 0),
        };
        Self { num_rows, num_lanes, rows_per_block, rows_per_window, key, permutation, short_slot, short_rows }
    }

    /// Returns the ordinal of the row at a position.
    pub fn ordinal(&self, position: u64) -> u64 {
        let (lane, index) = (position % self.num_lanes, position / self.num_lanes);
        let window = self.window(lane, index / self.rows_per_window);
        let offset = window.permutation.apply(index - window.rows.start);
        self.block_row(self.lane_start(lane) + window.rows.start + offset)
    }

    /// Appends the ordinals of `positions` to `out`. It keeps the last window and recently used blocks of each lane.
    pub fn ordinals(&self, positions: impl Iterator<Item = u64>, out: &mut Vec<u64>) {
        let mut cache: Vec<Option<LaneCache>> = vec![None; to_usize(self.num_lanes)];
        for position in positions {
            let (lane, index) = (position % self.num_lanes, position / self.num_lanes);
            let number = index / self.rows_per_window;
            let slot = &mut cache[to_usize(lane)];
            let cached = match slot {
                Some(cached) if cached.number == number => cached,
                _ => slot.insert(LaneCache::new(number, self.window(lane, number), self.lane_start(lane))),
            };
            let offset = cached.window.permutation.apply(index - cached.window.rows.start);
            let (slot, offset) = self.slot_of(cached.start + offset);
            out.push(cached.block(slot, &self.permutation) * self.rows_per_block + offset);
        }
    }

    /// Returns the position of the row with this ordinal.
    pub fn position(&self, ordinal: u64) -> u64 {
        let place = self.sequence_place(ordinal);
        let lane = self.lane_of(place);
        let in_lane = place - self.lane_start(lane);
        let window = self.window(lane, in_lane / self.rows_per_window);
        let index = window.rows.start + window.permutation.invert(in_lane - window.rows.start);
        index * self.num_lanes + lane
    }

    /// Returns the positions that share their windows with `position`. They are the unit in which rows are read.
    pub fn window_positions(&self, position: u64) -> Range<u64> {
        let rows = self.rows_per_window.saturating_mul(self.num_lanes);
        let start = position / rows * rows;
        start..start.saturating_add(rows).min(self.num_rows)
    }

    /// Returns the ordinal of the row at an index of the row sequence, which lists the rows of the permuted blocks.
    fn block_row(&self, place: u64) -> u64 {
        let (slot, offset) = self.slot_of(place);
        self.permutation.apply(slot) * self.rows_per_block + offset
    }

    /// Returns the index of the block, in the permuted sequence of blocks, that contains an index of the row sequence,
    /// and the offset of that row in the block.
    fn slot_of(&self, place: u64) -> (u64, u64) {
        let rows = self.rows_per_block;
        let short_start = self.short_slot * rows;
        if place < short_start {
            (place / rows, place % rows)
        } else if place < short_start + self.short_rows {
            (self.short_slot, place - short_start)
        } else {
            let place = place - self.short_rows;
            (place / rows + 1, place % rows)
        }
    }

    /// Returns the index in the row sequence of the row with this ordinal. It is the inverse of
    /// [`WindowOrder::block_row`].
    fn sequence_place(&self, ordinal: u64) -> u64 {
        let rows = self.rows_per_block;
        let slot = self.permutation.invert(ordinal / rows);
        let before = if slot > self.short_slot { (slot - 1) * rows + self.short_rows } else { slot * rows };
        before + ordinal % rows
    }

    /// Returns the index in the row sequence at which a lane begins. The first N mod L lanes have ⌈N/L⌉ rows, the
    /// others ⌊N/L⌋.
    fn lane_start(&self, lane: u64) -> u64 {
        let lanes = self.num_lanes;
        lane * (self.num_rows / lanes) + lane.min(self.num_rows % lanes)
    }

    fn lane_of(&self, place: u64) -> u64 {
        let lanes = self.num_lanes;
        let (short, longer) = (self.num_rows / lanes, self.num_rows % lanes);
        if place < longer * (short + 1) { place / (short + 1) } else { longer + (place - longer * (short + 1)) / short }
    }

    /// Returns window `number` of a lane. Its rows are counted from the start of the lane.
    fn window(&self, lane: u64, number: u64) -> Window {
        let length = self.lane_start(lane + 1) - self.lane_start(lane);
        let start = number * self.rows_per_window;
        let end = start.saturating_add(self.rows_per_window).min(length);
        let key = self.key.with(WINDOW).with(lane).with(number);
        Window { rows: start..end, permutation: Permutation::new(end - start, key) }
    }
}

#[derive(Clone, Debug)]
struct Window {
    rows: Range<u64>,
    permutation: Permutation,
}

/// The number of blocks that are cached for each lane. A window has about as many blocks.
const RECENT_BLOCKS: usize = 64;

/// The window of a lane from which a row was requested last.
#[derive(Clone, Debug)]
struct LaneCache {
    /// The window's number in its lane.
    number: u64,
    window: Window,
    /// The index in the row sequence of the window's first row.
    start: u64,
    /// Indexes in the permuted sequence of blocks, each with the number of the block there.
    recent: Box<[(u64, u64); RECENT_BLOCKS]>,
}

impl LaneCache {
    fn new(number: u64, window: Window, lane_start: u64) -> Self {
        let start = lane_start + window.rows.start;
        Self { number, window, start, recent: Box::new([(u64::MAX, 0); RECENT_BLOCKS]) }
    }

    /// Returns the block at an index of the permuted sequence of blocks.
    fn block(&mut self, slot: u64, permutation: &Permutation) -> u64 {
        let recent = &mut self.recent[to_usize(slot) % RECENT_BLOCKS];
        if recent.0 != slot {
            *recent = (slot, permutation.apply(slot));
        }
        recent.1
    }
}
