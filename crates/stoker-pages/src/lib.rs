//! Reads what Lance's data files say about their pages, and decodes pages of lists of numbers.
//!
//! ```text
//! PageInfo ──ListPage::try_new──► ListPage ──index_ranges──► I/O ──chunk_index──► ListChunks
//!                                                                                     │ chunks_of, byte_range
//!                     lists ◄──gather_lists── PageRows: rows, bytes of chunks ◄── I/O ◄┘
//! ```
//!
//! Lance stores a list of numbers in chunks of about 1,024 numbers ("mini-blocks"), each with the compressed numbers and
//! with levels that say where rows begin. Its decoder joins the levels of many chunks, takes them apart number by number,
//! and copies the numbers twice. [`gather_lists`] decodes the levels of one chunk at a time to runs of numbers. Then it
//! unpacks the numbers of each chunk to where they belong in the result, or copies the runs of the wanted rows there, in
//! any order. Compressions other than the usual ones are left to Lance's own functions, so that all of them are read.
//!
//! [`misplaced`] checks the offsets of all pages of a file.
//!
//! This crate does no I/O.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod chunk_parts;
mod error;
mod layout;
mod levels;
mod list_chunks;
mod list_page;
mod list_runs;
mod lists;
mod numbers;
mod packed;
mod streaming;

pub use error::{BadPage, Unsupported};
pub use layout::{have_rows, misplaced};
pub use list_chunks::ListChunks;
pub use list_page::ListPage;
pub use lists::{ChunksRead, PageRows, gather_lists};

/// Reads a number of at most eight bytes, the lowest first.
pub fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
