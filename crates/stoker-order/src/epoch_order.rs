//! The order of one epoch.

use std::ops::Range;

use stoker_types::{Mixing, OrderOptions, ShuffleMode};

use crate::delay_line::DelayLine;
use crate::window_order::WindowOrder;
use crate::{Key, Permutation};

/// A label that keeps the keys of different permutations distinct. The others are those of each way of mixing.
const FULL: u64 = 3;

/// The order of one epoch over a row set of `num_rows` rows.
///
/// It takes the same time to construct for any number of rows, and holds a few hundred bytes.
#[derive(Clone, Debug)]
pub struct EpochOrder {
    num_rows: u64,
    num_lanes: u64,
    rows_per_block: u64,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Sequential,
    Full(Permutation),
    Windows(WindowOrder),
    DelayLine(DelayLine),
}

impl EpochOrder {
    /// Makes the order of `epoch` under `seed`. The options must be valid ([`OrderOptions::validate`]).
    pub fn new(num_rows: u64, options: &OrderOptions, seed: u64, epoch: u64) -> Self {
        let key = Key::new(seed).with(epoch);
        let (num_lanes, rows_per_block) = (u64::from(options.num_lanes), options.rows_per_block);
        let kind = match (options.mode, options.mixing) {
            (ShuffleMode::Sequential, _) => Kind::Sequential,
            (ShuffleMode::Full, _) => Kind::Full(Permutation::new(num_rows, key.with(FULL))),
            (ShuffleMode::Block, Mixing::Windows { rows_per_window }) => {
                Kind::Windows(WindowOrder::new(num_rows, num_lanes, rows_per_block, rows_per_window, key))
            }
            (ShuffleMode::Block, Mixing::DelayLine { super_strides_per_block }) => {
                Kind::DelayLine(DelayLine::new(num_rows, num_lanes, rows_per_block, super_strides_per_block, key))
            }
        };
        Self { num_rows, num_lanes, rows_per_block, kind }
    }

    /// Returns the number of rows in the epoch.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Returns the delay line, or `None` if the order has none.
    pub fn delay_line(&self) -> Option<&DelayLine> {
        match &self.kind {
            Kind::DelayLine(order) => Some(order),
            Kind::Sequential | Kind::Full(_) | Kind::Windows(_) => None,
        }
    }

    /// Returns the ordinal of the row at `position < num_rows`.
    pub fn ordinal(&self, position: u64) -> u64 {
        debug_assert!(position < self.num_rows);
        match &self.kind {
            Kind::Sequential => position,
            Kind::Full(permutation) => permutation.apply(position),
            Kind::Windows(order) => order.ordinal(position),
            Kind::DelayLine(order) => order.ordinal(position),
        }
    }

    /// Appends the ordinals of `positions` to `out`, in the same order. It is faster than a call of
    /// [`EpochOrder::ordinal`] for each position, because it keeps what neighbouring positions of a lane share.
    pub fn ordinals(&self, positions: impl Iterator<Item = u64>, out: &mut Vec<u64>) {
        match &self.kind {
            Kind::Sequential | Kind::Full(_) => out.extend(positions.map(|position| self.ordinal(position))),
            Kind::Windows(order) => order.ordinals(positions, out),
            Kind::DelayLine(order) => order.ordinals(positions, out),
        }
    }

    /// Returns the position of the row with this ordinal. It is the inverse of [`EpochOrder::ordinal`].
    pub fn position(&self, ordinal: u64) -> u64 {
        debug_assert!(ordinal < self.num_rows);
        match &self.kind {
            Kind::Sequential => ordinal,
            Kind::Full(permutation) => permutation.invert(ordinal),
            Kind::Windows(order) => order.position(ordinal),
            Kind::DelayLine(order) => order.position(ordinal),
        }
    }

    /// Returns the lane that serves a position.
    pub fn lane(&self, position: u64) -> u64 {
        match &self.kind {
            Kind::Sequential => position / self.rows_per_block % self.num_lanes,
            Kind::Full(_) | Kind::Windows(_) | Kind::DelayLine(_) => position % self.num_lanes,
        }
    }

    /// Returns the positions that are best read together with `position`: those that share its windows, or its
    /// super-strides, in all lanes.
    ///
    /// Returns `None` in the modes without blocks: any run of positions is then as good to read as another.
    pub fn window_positions(&self, position: u64) -> Option<Range<u64>> {
        match &self.kind {
            Kind::Sequential | Kind::Full(_) => None,
            Kind::Windows(order) => Some(order.window_positions(position)),
            Kind::DelayLine(order) => Some(order.positions(order.super_stride(position).number)),
        }
    }
}
