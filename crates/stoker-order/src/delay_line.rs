//! Order version 2: each lane is a delay line.
//!
//! A lane opens one block in each super-stride, and delivers the rows of a block in several super-strides. With three
//! of them, the last blocks wrap around to the beginning of the epoch:
//!
//! ```text
//! super-stride     0        1        2        3        …  last - 1  last
//! block 0          piece 0  piece 1  piece 2
//! block 1                   piece 0  piece 1  piece 2
//! block 2                            piece 0  piece 1  …
//! last block - 1   piece 2                                piece 0   piece 1
//! last block       piece 1  piece 2                                 piece 0
//! ```

use std::ops::Range;

use stoker_types::to_usize;

use crate::rounds::{Rounds, Shuffle};
use crate::{Key, Permutation};

/// Labels that keep the keys of different permutations distinct.
const BLOCKS: u64 = 6;
const ROUNDS: u64 = 7;

/// The smallest number of rows in a window within which rows may replace each other.
pub(crate) const WINDOW_ROWS_MIN: u64 = 1_024;

/// The order of one epoch whose lanes are delay lines. [`EpochOrder`](crate::EpochOrder) has its ordinals and positions.
/// All functions take constant time, and iterators take it for each item.
///
/// A row set has whole blocks of `rows_per_block` rows, and at most one short block after them. The *lane blocks* are
/// the same number of whole blocks for each lane. All other rows are *the rest*, which the lanes share evenly.
///
/// Each lane has one super-stride for each of its lane blocks. It delivers as many rows as a block has, and its share
/// of the lane's rest. A lane without lane blocks has one super-stride, with all its rows.
#[derive(Clone, Debug)]
pub struct DelayLine {
    num_rows: u64,
    num_lanes: u64,
    rows_per_block: u64,
    /// The number of super-strides that deliver a block. It is at most `lane_blocks`.
    strides: u64,
    lane_blocks: u64,
    num_whole_blocks: u64,
    /// The permutation of the whole blocks.
    permutation: Permutation,
    rounds_key: Key,
}

/// Consecutive rows of one lane that are permuted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SuperStride {
    /// The lane.
    pub lane: u64,
    /// The number of the super-stride in its lane.
    pub number: u64,
}

/// Neighbouring rows of one block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BlockPiece {
    /// The block that contains the rows: the ordinal of its first row, divided by the number of rows in a block.
    pub block: u64,
    /// The ordinals of the rows.
    pub ordinals: Range<u64>,
}

impl DelayLine {
    /// Makes the order under the key of an epoch.
    pub(crate) fn new(num_rows: u64, num_lanes: u64, rows_per_block: u64, strides: u64, key: Key) -> Self {
        let num_whole_blocks = num_rows / rows_per_block;
        let lane_blocks = num_whole_blocks / num_lanes;
        Self {
            num_rows,
            num_lanes,
            rows_per_block,
            strides: strides.min(lane_blocks.max(1)),
            lane_blocks,
            num_whole_blocks,
            permutation: Permutation::new(num_whole_blocks, key.with(BLOCKS)),
            rounds_key: key.with(ROUNDS),
        }
    }

    /// Returns the ordinal of the row at a position.
    pub(crate) fn ordinal(&self, position: u64) -> u64 {
        let stride = self.super_stride(position);
        let indexes = self.indexes(stride);
        let rounds = self.rounds(stride);
        let slot = rounds.slot(position / self.num_lanes - indexes.start);
        match self.place(stride, slot) {
            SlotContent::Lane { block, row } => self.permutation.apply(block) * self.rows_per_block + row,
            SlotContent::Rest(index) => self.rest_ordinal(stride.lane, index),
        }
    }

    /// Appends the ordinals of `positions` to `out`. It keeps the last super-stride and recently used blocks of each
    /// lane.
    pub(crate) fn ordinals(&self, positions: impl Iterator<Item = u64>, out: &mut Vec<u64>) {
        let mut cache: Vec<Option<LaneCache>> = vec![None; to_usize(self.num_lanes)];
        for position in positions {
            let (lane, index) = (position % self.num_lanes, position / self.num_lanes);
            let cached = cache[to_usize(lane)].get_or_insert_with(|| LaneCache::new(self, self.super_stride(position)));
            if !cached.indexes.contains(&index) {
                cached.enter(self, self.super_stride(position));
            }
            let slot = cached.shuffle.slot(&cached.rounds, index - cached.indexes.start);
            out.push(match self.place(cached.stride, slot) {
                SlotContent::Lane { block, row } => cached.block(block, &self.permutation) * self.rows_per_block + row,
                SlotContent::Rest(index) => self.rest_ordinal(lane, index),
            });
        }
    }

    /// Returns the position of the row with this ordinal.
    pub(crate) fn position(&self, ordinal: u64) -> u64 {
        let (stride, slot) = self.delivered(ordinal);
        let index = self.indexes(stride).start + self.rounds(stride).index(slot);
        index * self.num_lanes + stride.lane
    }

    /// Returns the positions of neighbouring rows of one block that one super-stride delivers, as an item of
    /// [`DelayLine::deliveries`] has them, by ascending ordinals.
    pub fn positions_of(&self, ordinals: Range<u64>) -> impl Iterator<Item = u64> {
        let (stride, slot) = self.delivered(ordinals.start);
        let (start, rounds) = (self.indexes(stride).start, self.rounds(stride));
        let slots = slot..slot + ordinals.end.saturating_sub(ordinals.start);
        slots.map(move |slot| (start + rounds.index(slot)) * self.num_lanes + stride.lane)
    }

    /// Returns the super-stride that delivers the row with this ordinal, and the row's slot in it.
    fn delivered(&self, ordinal: u64) -> (SuperStride, u64) {
        let (block, row) = (ordinal / self.rows_per_block, ordinal % self.rows_per_block);
        let whole = (block < self.num_whole_blocks).then(|| self.permutation.invert(block));
        match whole.filter(|block| *block < self.num_lane_blocks()) {
            Some(block) => (self.delivery(block, row), row),
            None => {
                let place = whole.map_or(ordinal, |block| block * self.rows_per_block + row);
                let (lane, index) = self.rest_index(place);
                let stride = SuperStride { lane, number: self.rest_number(index) };
                (stride, self.regular_rows() + index - self.rest_before(stride.number))
            }
        }
    }

    /// Returns the number of super-strides of each lane.
    pub fn num_super_strides(&self) -> u64 {
        self.lane_blocks.max(1)
    }

    /// Returns the super-stride that delivers `position`.
    pub fn super_stride(&self, position: u64) -> SuperStride {
        let (lane, index) = (position % self.num_lanes, position / self.num_lanes);
        SuperStride { lane, number: self.number(index) }
    }

    /// Returns the numbers of the super-strides of a lane that deliver rows at some of `positions`.
    pub fn super_strides(&self, lane: u64, positions: Range<u64>) -> Range<u64> {
        let index = |position: u64| position.min(self.num_rows).saturating_sub(lane).div_ceil(self.num_lanes);
        let (start, end) = (index(positions.start), index(positions.end));
        if start < end { self.number(start)..self.number(end - 1) + 1 } else { 0..0 }
    }

    /// Returns the positions of the super-strides with this number, of all lanes together. Each lane delivers the
    /// positions among them that are its own.
    pub fn positions(&self, number: u64) -> Range<u64> {
        let end = match number + 1 == self.num_super_strides() {
            true => self.num_rows,
            false => self.start(number + 1) * self.num_lanes,
        };
        self.start(number) * self.num_lanes..end
    }

    /// Returns the positions of the window that contains `position`, within which rows may replace each other. The last
    /// window may have fewer super-strides than the others.
    pub fn window(&self, position: u64) -> Range<u64> {
        let strides = self.window_strides();
        let first = self.super_stride(position).number / strides * strides;
        let last = first.saturating_add(strides).min(self.num_super_strides()) - 1;
        self.positions(first).start..self.positions(last).end
    }

    /// Returns the number of super-strides of all lanes that a window has: as many as deliver a block, and as many as
    /// have 1,024 rows.
    pub fn window_strides(&self) -> u64 {
        self.strides.max(WINDOW_ROWS_MIN.div_ceil(self.rows_per_block.saturating_mul(self.num_lanes)))
    }

    /// Returns the number of lane blocks that a lane delivers in one super-stride, and so holds at once.
    pub fn open_blocks(&self) -> u64 {
        if self.lane_blocks == 0 { 0 } else { self.delay(self.rows_per_block - 1) + 1 }
    }

    /// Returns the pieces that a super-stride delivers.
    pub fn pieces(&self, stride: SuperStride) -> impl Iterator<Item = BlockPiece> {
        let of_block = move |(delay, rows): (u64, Range<u64>)| {
            self.piece(stride.lane, self.group_before(stride.number, delay), rows)
        };
        self.block_pieces().map(of_block).chain(self.rest_pieces(stride.lane, self.rest(stride)))
    }

    /// Returns the rows that a reader takes up when a super-stride begins: those rows of the block that the
    /// super-stride opens which the epoch delivers from there on, and the lane's rows of each block of the rest whose
    /// delivery begins.
    ///
    /// A reader of the whole epoch reads [`DelayLine::pending`] for super-stride 0, and then the arrivals of each
    /// super-stride. So it reads each row once.
    pub fn arrivals(&self, stride: SuperStride) -> impl Iterator<Item = BlockPiece> {
        let opened = self.opened_rows(stride.number, 0);
        let opened = opened.map(|rows| self.piece(stride.lane, stride.number, rows));
        let Range { start, end } = self.rest(stride);
        let first = if self.is_rest_border(stride.lane, start) { start } else { self.rest_border(stride.lane, start) };
        let rest = if first < end { first..self.rest_border(stride.lane, end - 1) } else { 0..0 };
        opened.into_iter().chain(self.rest_pieces(stride.lane, rest))
    }

    /// Returns the rows that arrived before a super-stride began and that are delivered in it or later. A reader that
    /// begins in this super-stride reads them first. For super-stride 0, these are rows of blocks that the last
    /// super-strides open.
    pub fn pending(&self, stride: SuperStride) -> impl Iterator<Item = BlockPiece> {
        let SuperStride { lane, number } = stride;
        let opened = (1..self.open_blocks()).filter_map(move |age| match number.checked_sub(age) {
            Some(group) => Some(self.piece(lane, group, self.opened_rows(group, age)?)),
            None => {
                let rows = self.first_delayed(age)..self.rows_per_block;
                Some(self.piece(lane, self.group_before(number, age), rows))
            }
        });
        let start = self.rest(stride).start;
        let rest = match start < self.rest_rows(lane) && !self.is_rest_border(lane, start) {
            true => start..self.rest_border(lane, start),
            false => 0..0,
        };
        opened.chain(self.rest_pieces(lane, rest))
    }

    /// Returns the super-strides that deliver rows of a block, with the ordinals of these rows. The super-strides of a
    /// block of the rest may be of several lanes.
    pub fn deliveries(&self, block: u64) -> impl Iterator<Item = (SuperStride, Range<u64>)> {
        let rows = self.rows_per_block;
        let first = block * rows;
        let whole = (block < self.num_whole_blocks).then(|| self.permutation.invert(block));
        let in_lane = whole.filter(|block| *block < self.num_lane_blocks());
        let of_lane = in_lane.into_iter().flat_map(move |block| {
            let of_piece = move |(_, rows): (u64, Range<u64>)| {
                (self.delivery(block, rows.start), first + rows.start..first + rows.end)
            };
            self.block_pieces().map(of_piece)
        });
        let start = whole.map_or(first, |block| block * rows);
        let end = if in_lane.is_some() { start } else { start.saturating_add(rows).min(self.num_rows) };
        let mut place = start;
        let of_rest = std::iter::from_fn(move || {
            if place >= end {
                return None;
            }
            let (lane, index) = self.rest_index(place);
            let stride = SuperStride { lane, number: self.rest_number(index) };
            let num_rows = (self.rest(stride).end - index).min(end - place);
            let ordinal = first + (place - start);
            place += num_rows;
            Some((stride, ordinal..ordinal + num_rows))
        });
        of_lane.chain(of_rest)
    }

    /// Returns the number of the super-stride that delivers an index of a lane.
    fn number(&self, index: u64) -> u64 {
        share_of(index, self.num_rows / self.num_lanes, self.num_super_strides())
    }

    /// Returns the index at which the super-strides with this number begin in their lanes.
    fn start(&self, number: u64) -> u64 {
        number * self.regular_rows() + self.rest_before(number)
    }

    /// Returns the indexes, in its lane, of a super-stride.
    fn indexes(&self, stride: SuperStride) -> Range<u64> {
        let start = self.start(stride.number);
        let rest = self.rest(stride);
        start..start + self.regular_rows() + (rest.end - rest.start)
    }

    /// Returns the number of rows of lane blocks in a super-stride.
    fn regular_rows(&self) -> u64 {
        if self.lane_blocks == 0 { 0 } else { self.rows_per_block }
    }

    /// Returns the number of lane blocks of all lanes.
    fn num_lane_blocks(&self) -> u64 {
        self.lane_blocks * self.num_lanes
    }

    fn rounds(&self, stride: SuperStride) -> Rounds {
        let Range { start, end } = self.indexes(stride);
        let rows = end - start;
        let lane_key = self.rounds_key.with(stride.lane);
        let key = lane_key.with(stride.number);
        // A super-stride of one block, or of rows of the rest only, is permuted uniformly.
        if self.strides < 2 {
            return Rounds::uniform(rows, key);
        }
        let columns = if self.strides < self.rows_per_block { self.strides } else { rows };
        // Each lane begins at another slot, so that the lanes do not deliver their rests at the same time.
        Rounds::new(rows, columns, lane_key.bits() % self.rows_per_block, key)
    }

    /// Returns what is at a slot of a super-stride.
    fn place(&self, stride: SuperStride, slot: u64) -> SlotContent {
        match slot.checked_sub(self.regular_rows()) {
            None => {
                let group = self.group_before(stride.number, self.delay(slot));
                SlotContent::Lane { block: stride.lane * self.lane_blocks + group, row: slot }
            }
            Some(slot) => SlotContent::Rest(self.rest_before(stride.number) + slot),
        }
    }

    /// Returns the number of super-strides between the opening of a block and the delivery of its row `row`.
    fn delay(&self, row: u64) -> u64 {
        row * self.strides / self.rows_per_block
    }

    /// Returns the first row of a block that is delivered `delay` super-strides after the block is opened, or later.
    fn first_delayed(&self, delay: u64) -> u64 {
        (delay * self.rows_per_block).div_ceil(self.strides)
    }

    /// Returns the super-stride that delivers a row of a lane block, which is named by its index in the permuted
    /// sequence of blocks.
    fn delivery(&self, block: u64, row: u64) -> SuperStride {
        let (lane, group) = (block / self.lane_blocks, block % self.lane_blocks);
        let (delay, left) = (self.delay(row), self.lane_blocks - group);
        SuperStride { lane, number: if delay < left { group + delay } else { delay - left } }
    }

    /// Returns the lane block that was opened `delay` super-strides before a super-stride, cyclically. The delay is below
    /// the number of lane blocks.
    fn group_before(&self, number: u64, delay: u64) -> u64 {
        if delay <= number { number - delay } else { number + (self.lane_blocks - delay) }
    }

    /// Returns the rows of the pieces of a lane block, with the delay of each piece.
    fn block_pieces(&self) -> impl Iterator<Item = (u64, Range<u64>)> {
        let rows = self.rows_per_block;
        let num_pieces = if self.lane_blocks == 0 { 0 } else { self.strides.min(rows) };
        let cut = move |number: u64| (number * rows).div_ceil(num_pieces);
        (0..num_pieces).map(move |number| (self.delay(cut(number)), cut(number)..cut(number + 1)))
    }

    /// Returns the rows of the lane block of super-stride `group` that have a delay of at least `delay` and are
    /// delivered in the same epoch after the block is opened, if there are such rows.
    fn opened_rows(&self, group: u64, delay: u64) -> Option<Range<u64>> {
        let left = self.lane_blocks.checked_sub(group).filter(|left| *left > 0)?;
        let end = if left < self.strides { self.first_delayed(left) } else { self.rows_per_block };
        Some(self.first_delayed(delay)..end).filter(|rows| !rows.is_empty())
    }

    /// Returns rows of a lane block.
    fn piece(&self, lane: u64, group: u64, rows: Range<u64>) -> BlockPiece {
        let block = self.permutation.apply(lane * self.lane_blocks + group);
        let first = block * self.rows_per_block;
        BlockPiece { block, ordinals: first + rows.start..first + rows.end }
    }

    /// Returns the number of rows of the rest that each lane delivers; the first lanes deliver one more.
    fn rest_rows_min(&self) -> u64 {
        self.num_rows / self.num_lanes - self.lane_blocks * self.rows_per_block
    }

    /// Returns the number of rows of the rest that a lane delivers.
    fn rest_rows(&self, lane: u64) -> u64 {
        self.rest_rows_min() + u64::from(lane < self.num_rows % self.num_lanes)
    }

    /// Returns the number of rows of the rest that a lane delivers before a super-stride.
    fn rest_before(&self, number: u64) -> u64 {
        number * self.rest_rows_min() / self.num_super_strides()
    }

    /// Returns the rows of its lane's rest that a super-stride delivers.
    fn rest(&self, stride: SuperStride) -> Range<u64> {
        let SuperStride { lane, number } = stride;
        let is_last = number + 1 == self.num_super_strides();
        self.rest_before(number)..if is_last { self.rest_rows(lane) } else { self.rest_before(number + 1) }
    }

    /// Returns the number of the super-stride that delivers a row of a lane's rest.
    fn rest_number(&self, index: u64) -> u64 {
        share_of(index, self.rest_rows_min(), self.num_super_strides())
    }

    /// Returns the place of the first row of a lane's rest. Places count the rows of the permuted sequence of blocks, in
    /// which the rest comes last.
    fn rest_start(&self, lane: u64) -> u64 {
        let before = lane * self.rest_rows_min() + lane.min(self.num_rows % self.num_lanes);
        self.num_lane_blocks() * self.rows_per_block + before
    }

    /// Returns the lane that delivers a place of the rest, and the index in the lane's rest.
    fn rest_index(&self, place: u64) -> (u64, u64) {
        let (short, longer) = (self.rest_rows_min(), self.num_rows % self.num_lanes);
        let index = place - self.num_lane_blocks() * self.rows_per_block;
        match index.checked_sub(longer * (short + 1)) {
            None => (index / (short + 1), index % (short + 1)),
            Some(index) => (longer + index / short.max(1), index % short.max(1)),
        }
    }

    /// Returns the ordinal at a place of the permuted sequence of blocks.
    fn place_ordinal(&self, place: u64) -> u64 {
        let (block, row) = (place / self.rows_per_block, place % self.rows_per_block);
        if block < self.num_whole_blocks { self.permutation.apply(block) * self.rows_per_block + row } else { place }
    }

    fn rest_ordinal(&self, lane: u64, index: u64) -> u64 {
        self.place_ordinal(self.rest_start(lane) + index)
    }

    /// Returns whether a row of a lane's rest is the lane's first row of its block.
    fn is_rest_border(&self, lane: u64, index: u64) -> bool {
        index == 0 || (self.rest_start(lane) + index).is_multiple_of(self.rows_per_block)
    }

    /// Returns the first row of a lane's rest after `index` that is of another block, or the number of its rows.
    fn rest_border(&self, lane: u64, index: u64) -> u64 {
        let start = self.rest_start(lane);
        let next = ((start + index) / self.rows_per_block + 1).saturating_mul(self.rows_per_block);
        (next - start).min(self.rest_rows(lane))
    }

    /// Returns rows of a lane's rest, cut where blocks begin.
    fn rest_pieces(&self, lane: u64, rows: Range<u64>) -> impl Iterator<Item = BlockPiece> {
        let mut start = rows.start;
        std::iter::from_fn(move || {
            if start >= rows.end {
                return None;
            }
            let end = self.rest_border(lane, start).min(rows.end);
            let ordinal = self.rest_ordinal(lane, start);
            let ordinals = ordinal..ordinal + (end - start);
            start = end;
            Some(BlockPiece { block: ordinal / self.rows_per_block, ordinals })
        })
    }
}

/// Returns the share that contains `index`, where `total` indexes are cut into `shares` shares: share i begins at
/// ⌊total * i / shares⌋. The last share contains all indexes from there on.
fn share_of(index: u64, total: u64, shares: u64) -> u64 {
    if total == 0 {
        return shares - 1;
    }
    let share = ((u128::from(index) + 1) * u128::from(shares) - 1) / u128::from(total);
    u64::try_from(share).unwrap_or(u64::MAX).min(shares - 1)
}

/// What a slot of a super-stride delivers.
enum SlotContent {
    /// A row of the lane block with this index in the permuted sequence of blocks.
    Lane { block: u64, row: u64 },
    /// An index of the lane's rest.
    Rest(u64),
}

/// The largest number of blocks that are cached for each lane, and for all lanes together.
const RECENT_BLOCKS_MAX: u64 = 256;
const ALL_RECENT_BLOCKS_MAX: u64 = 65_536;

/// The super-stride of a lane from which a row was requested last.
#[derive(Clone, Debug)]
struct LaneCache {
    stride: SuperStride,
    /// The indexes of the super-stride in its lane.
    indexes: Range<u64>,
    rounds: Rounds,
    shuffle: Shuffle,
    /// Indexes in the permuted sequence of blocks, each with the number of the block there.
    recent: Vec<(u64, u64)>,
}

impl LaneCache {
    fn new(order: &DelayLine, stride: SuperStride) -> Self {
        let most = (ALL_RECENT_BLOCKS_MAX / order.num_lanes).clamp(1, RECENT_BLOCKS_MAX);
        let num_recent = order.open_blocks().clamp(1, most).next_power_of_two();
        Self {
            stride,
            indexes: order.indexes(stride),
            rounds: order.rounds(stride),
            shuffle: Shuffle::default(),
            recent: vec![(u64::MAX, 0); to_usize(num_recent)],
        }
    }

    fn enter(&mut self, order: &DelayLine, stride: SuperStride) {
        self.stride = stride;
        self.indexes = order.indexes(stride);
        self.rounds = order.rounds(stride);
        self.shuffle = Shuffle::default();
    }

    /// Returns the block at an index of the permuted sequence of blocks.
    fn block(&mut self, slot: u64, permutation: &Permutation) -> u64 {
        let place = to_usize(slot) & (self.recent.len() - 1);
        let recent = &mut self.recent[place];
        if recent.0 != slot {
            *recent = (slot, permutation.apply(slot));
        }
        recent.1
    }
}
