//! The chunk scan: reads rows of heavy columns at given row addresses, in few large reads, directly into batches.
//!
//! ```text
//! (row address, slots) … ──sort, divide, coalesce──► ranges ──positioned reads / GETs──► slots of batches
//! ```
//!
//! [`Slots`](stoker_batch::Slots) is the memory of one column of one batch. Each of its slots is claimed once, alone or
//! with its neighbours, and filled from any file, so a shuffled batch needs no copy after the read.
//! [`ChunkScan::gather`] fills claimed slots with runs of rows, and verifies the bytes if their files have checksums; a
//! damaged row is returned as a [`BadRow`] and leaves its slots unfilled.
//!
//! Rows in object stores may be read in [`Block`]s: once for several streams of the process ([`SharedReads`]), or once
//! for later epochs and other processes ([`ChunkCache`]).

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod aligned_reader;
mod array;
mod block_range;
mod block_scan;
mod cache;
mod chunk_scan;
mod coalesce;
mod deadline;
mod error;
mod file_ranges;
mod hedge;
mod local;
mod local_scan;
mod local_threads;
mod locator;
mod members;
mod remote;
mod remote_target;
mod request_limit;
mod retry;
mod row_cursor;
mod runs;
mod shared_reads;
mod shared_scan;
mod stats;
mod verify;
mod verify_values;

pub use array::to_array;
pub use block_scan::{Block, BlockColumn, BlockReads};
pub use cache::{CacheOptions, ChunkCache};
pub use chunk_scan::{ChunkScan, ChunkScanOptions};
pub use error::{Error, Result};
pub use file_ranges::Freshness;
pub use local_scan::LocalReads;
pub use request_limit::RequestLimit;
pub use retry::{Fault, RetryPolicy, with_retries};
pub use shared_reads::{Group, Membership, SharedReads};
pub use stats::IoStats;
pub use verify::BadRow;
pub use verify_values::verify_values;

#[cfg(test)]
mod tests;
