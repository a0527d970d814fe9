//! The order of one epoch.

use std::ops::Range;

use stoker_types::{OrderOptions, ShuffleMode, to_usize};

use crate::{Key, Permutation};

/// Labels that keep the keys of different permutations distinct.
const BLOCKS: u64 = 1;
const WINDOW: u64 = 2;
const FULL: u64 = 3;

/// The order of one epoch over a row set of `num_rows` rows.
///
/// It takes the same time to construct for any number of rows, and holds a few hundred bytes.
#[derive(Clone, Debug)]
pub struct EpochOrder {
    num_rows: u64,
    options: OrderOptions,
    key: Key,
    /// The permutation of the blocks (block and sequential mode) or of the rows (full mode).
    permutation: Permutation,
    /// The index of the last block, which may be short, in the permuted sequence of blocks.
    short_slot: u64,
    short_rows: u64,
}

impl EpochOrder {
    /// Makes the order of `epoch` under `seed`. The options must be valid ([`OrderOptions::validate`]).
    pub fn new(num_rows: u64, options: &OrderOptions, seed: u64, epoch: u64) -> Self {
        let key = Key::new(seed).with(epoch);
        let num_blocks = num_rows.div_ceil(options.rows_per_block);
        let permutation = match options.mode {
            ShuffleMode::Full => Permutation::new(num_rows, key.with(FULL)),
            ShuffleMode::Block | ShuffleMode::Sequential => Permutation::new(num_blocks, key.with(BLOCKS)),
        };
        let (short_slot, short_rows) = match (options.mode, num_blocks.checked_sub(1)) {
            (ShuffleMode::Block, Some(last)) => (permutation.invert(last), num_rows - last * options.rows_per_block),
            _ => (0, 0),
        };
        Self { num_rows, options: options.clone(), key, permutation, short_slot, short_rows }
    }

    /// Returns the number of rows in the epoch.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the ordinal of the row at `position < num_rows`.
    pub fn ordinal(&self, position: u64) -> u64 {
        debug_assert!(position < self.num_rows);
        match self.options.mode {
            ShuffleMode::Sequential => position,
            ShuffleMode::Full => self.permutation.apply(position),
            ShuffleMode::Block => {
                let lanes = u64::from(self.options.num_lanes);
                let (lane, index) = (position % lanes, position / lanes);
                let window = self.window(lane, index / self.options.rows_per_window);
                let offset = window.permutation.apply(index - window.rows.start);
                self.block_row(self.lane_start(lane) + window.rows.start + offset)
            }
        }
    }

    /// Appends the ordinals of `positions` to `out`, in the same order. It is faster than a call of
    /// [`EpochOrder::ordinal`] for each position, because it keeps the last window and recently used blocks of each
    /// lane.
    pub fn ordinals(&self, positions: impl Iterator<Item = u64>, out: &mut Vec<u64>) {
        if self.options.mode != ShuffleMode::Block {
            out.extend(positions.map(|position| self.ordinal(position)));
            return;
        }
        let lanes = u64::from(self.options.num_lanes);
        let mut cache: Vec<Option<LaneCache>> = vec![None; self.options.num_lanes as usize];
        for position in positions {
            let (lane, index) = (position % lanes, position / lanes);
            let number = index / self.options.rows_per_window;
            let slot = &mut cache[to_usize(lane)];
            let cached = match slot {
                Some(cached) if cached.number == number => cached,
                _ => slot.insert(LaneCache::new(number, self.window(lane, number), self.lane_start(lane))),
            };
            let offset = cached.window.permutation.apply(index - cached.window.rows.start);
            let (slot, offset) = self.slot_of(cached.start + offset);
            out.push(cached.block(slot, &self.permutation) * self.options.rows_per_block + offset);
        }
    }

    /// Returns the position of the row with this ordinal. It is the inverse of [`EpochOrder::ordinal`].
    pub fn position(&self, ordinal: u64) -> u64 {
        debug_assert!(ordinal < self.num_rows);
        match self.options.mode {
            ShuffleMode::Sequential => ordinal,
            ShuffleMode::Full => self.permutation.invert(ordinal),
            ShuffleMode::Block => {
                let place = self.sequence_place(ordinal);
                let lane = self.lane_of(place);
                let in_lane = place - self.lane_start(lane);
                let window = self.window(lane, in_lane / self.options.rows_per_window);
                let index = window.rows.start + window.permutation.invert(in_lane - window.rows.start);
                index * u64::from(self.options.num_lanes) + lane
            }
        }
    }

    /// Returns the lane that serves a position.
    pub fn lane(&self, position: u64) -> u64 {
        let lanes = u64::from(self.options.num_lanes);
        match self.options.mode {
            ShuffleMode::Sequential => position / self.options.rows_per_block % lanes,
            ShuffleMode::Block | ShuffleMode::Full => position % lanes,
        }
    }

    /// Returns the positions that share their windows with `position`. They are the unit in which rows are read.
    ///
    /// Returns `None` unless rows are shuffled inside windows: in the other modes, any run of positions is as good to
    /// read as another.
    pub fn window_positions(&self, position: u64) -> Option<Range<u64>> {
        if self.options.mode != ShuffleMode::Block {
            return None;
        }
        let rows = self.options.rows_per_window.saturating_mul(u64::from(self.options.num_lanes));
        let start = position / rows * rows;
        Some(start..start.saturating_add(rows).min(self.num_rows))
    }

    /// Returns the ordinal of the row at an index of the row sequence, which lists the rows of the permuted blocks.
    fn block_row(&self, place: u64) -> u64 {
        let (slot, offset) = self.slot_of(place);
        self.permutation.apply(slot) * self.options.rows_per_block + offset
    }

    /// Returns the index of the block, in the permuted sequence of blocks, that contains an index of the row sequence,
    /// and the offset of that row in the block.
    fn slot_of(&self, place: u64) -> (u64, u64) {
        let rows = self.options.rows_per_block;
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
    /// [`EpochOrder::block_row`].
    fn sequence_place(&self, ordinal: u64) -> u64 {
        let rows = self.options.rows_per_block;
        let slot = self.permutation.invert(ordinal / rows);
        let before = if slot > self.short_slot { (slot - 1) * rows + self.short_rows } else { slot * rows };
        before + ordinal % rows
    }

    /// Returns the index in the row sequence at which a lane begins. The first N mod L lanes have ⌈N/L⌉ rows, the
    /// others ⌊N/L⌋.
    fn lane_start(&self, lane: u64) -> u64 {
        let lanes = u64::from(self.options.num_lanes);
        lane * (self.num_rows / lanes) + lane.min(self.num_rows % lanes)
    }

    fn lane_of(&self, place: u64) -> u64 {
        let lanes = u64::from(self.options.num_lanes);
        let (short, longer) = (self.num_rows / lanes, self.num_rows % lanes);
        if place < longer * (short + 1) { place / (short + 1) } else { longer + (place - longer * (short + 1)) / short }
    }

    /// Returns window `number` of a lane. Its rows are counted from the start of the lane.
    fn window(&self, lane: u64, number: u64) -> Window {
        let length = self.lane_start(lane + 1) - self.lane_start(lane);
        let start = number * self.options.rows_per_window;
        let end = start.saturating_add(self.options.rows_per_window).min(length);
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
