//! Reads files of arrays as rows: NumPy's `.npy` and `.npz`, and safetensors.
//!
//! ```text
//! NumpyFormat, SafetensorsFormat ──plan──► arrays: header, shape ──► ArrayRows: columns of rows, read by ranges
//!      .npz ──zip_directory──► members ──zip_reader──┘
//! ```
//!
//! The first dimension of an array is its rows. Arrays side by side, of one file or of several, become columns.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod array_rows;
mod column_names;
mod file_range;
mod npy_header;
mod npy_type;
mod numpy;
mod python_literal;
mod safetensors;
mod zip_directory;
mod zip_reader;

pub use numpy::NumpyFormat;
pub use safetensors::SafetensorsFormat;
pub(crate) use stoker_files::{Error, Result};

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
