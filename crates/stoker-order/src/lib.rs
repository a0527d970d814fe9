//! The order in which an epoch visits a row set, as pure functions of seed, epoch and options.
//!
//! ```text
//! row set ──cut into blocks──► blocks permuted ──► one row sequence ──cut──► lanes ──windows permuted──► positions
//!          (rows_per_block)    (seed, epoch)                       (num_lanes)      (seed, epoch, lane, window)
//! ```
//!
//! [`EpochOrder::ordinal`] maps a position to the ordinal of a row in its row set in constant time and without memory per
//! row; [`EpochOrder::position`] is its inverse. `crates/stoker-order/ORDER.md` specifies both precisely enough to reimplement them.

mod epoch_order;
mod permutation;

pub use epoch_order::EpochOrder;
pub use permutation::{Key, Permutation};

#[cfg(test)]
mod tests;
