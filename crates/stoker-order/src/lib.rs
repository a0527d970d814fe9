//! The order in which an epoch visits a row set, as pure functions of seed, epoch and options.
//!
//! ```text
//! row set ──cut into blocks──► blocks permuted ──► one row sequence ──cut──► lanes ──rows mixed──► positions
//!          (rows_per_block)    (seed, epoch)                       (num_lanes)
//! ```
//!
//! Version 1 of the order mixes rows inside windows of each lane. In version 2, each lane is a [`DelayLine`].
//!
//! [`EpochOrder::ordinal`] maps a position to the ordinal of a row in its row set, in constant time and without memory
//! per row. [`EpochOrder::position`] is its inverse. [`Mixture`] distributes draws over several row sets.
//! [`StreamOrder`] combines both for a stream: it tells which row of which row set a position delivers. Where the rows of a
//! row set have weights, an order visits weighted ordinals, which a [`WeightedEpoch`] maps to rows; where they are packed,
//! it visits packs, whose documents a [`Packing`] knows; and where they come in buckets, it visits buckets, whose rows a
//! [`Bucketing`] knows.
//! `crates/stoker-order/ORDER.md` specifies the order precisely enough to implement it again.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod bucketing;
mod delay_line;
mod epoch_order;
mod mixture;
mod pack_tokens;
mod packing;
mod permutation;
mod rounds;
mod stream_order;
mod weighted;
mod window_order;

pub use bucketing::{BucketGroup, BucketRow, BucketSize, Bucketing};
pub use delay_line::{BlockPiece, DelayLine, SuperStride};
pub use epoch_order::EpochOrder;
pub use mixture::{Draw, Mixture};
pub use pack_tokens::{write_documents, write_positions};
pub use packing::{DocumentPiece, PackSize, PackedGroup, Packer, Packing};
pub use permutation::{Key, Permutation};
pub use stream_order::{StreamOrder, StreamOrders, Visit, source_seed};
pub use weighted::{WEIGHT_GROUP_ROWS, WEIGHT_MAX, WeightSums, WeightedEpoch, WeightedGroup};

#[cfg(test)]
mod tests;
