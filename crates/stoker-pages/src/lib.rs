//! What Lance's data files say about their pages, pages of lists of numbers, and what rows become in data files.
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
//! [`misplaced`] checks the offsets of all pages of a file, and [`checksums_offset`] finds the checksums in one. [`Obstacle`] says
//! why the pages of a column cannot be read as plain bytes.
//!
//! The other way, [`check_names`] and [`check_schema`] say which columns a table can have and which rows fit it, [`conform`]
//! gives rows the exact columns of a table, and [`PageBuffer`] collects the rows of a heavy column into pages.
//!
//! This crate does no I/O.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod checksum_entry;
mod chunk_parts;
mod conform;
mod error;
mod layout;
mod levels;
mod list_chunks;
mod list_page;
mod list_runs;
mod lists;
mod numbers;
mod obstacle;
mod packed;
mod page_buffer;
mod streaming;
mod table_columns;

pub use checksum_entry::{CHECKSUM_BYTES, CHECKSUMS_KEY, Described, Misfit, checksums_entry, checksums_offset};
pub use conform::{conform, retype, retype_columns, with_losses};
pub use error::{BadPage, Unsupported};
pub use layout::{have_rows, misplaced};
pub use list_chunks::ListChunks;
pub use list_page::ListPage;
pub use lists::{ChunksRead, PageRows, gather_lists};
pub use obstacle::Obstacle;
pub use page_buffer::{PageBuffer, compact};
pub use table_columns::{
    COMPRESSION_KEY, COMPRESSION_LEVEL_KEY, check_names, check_schema, is_reserved_name, may_be_plain,
    with_media_uncompressed,
};

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
