//! Compresses the rows of tensor columns, each into a frame of its own.
//!
//! ```text
//! row's bytes ──Encoder──► frame: version, codec, type, number of elements │ payload ──Decoder──► row's bytes
//!  RowType: element type,          (FORMAT.md)                                        in the caller's memory
//!  number of elements
//! ```
//!
//! [`Codec`] says how rows are written; frames say themselves how they were. `FORMAT.md` beside this crate's manifest
//! specifies both, so that other programs can read the columns.
//!
//! Small rows compress badly alone. A [`Dictionary`], made of some rows of a column, has what they have in common; each row
//! still has a frame of its own.
//!
//! A [`Decoder`] writes a row to memory of exactly its size, and takes no more memory than the row has bytes, whatever the
//! frame declares; `pco` takes some hundred KiB for its tables. Encoders and decoders have buffers that they reuse: each
//! thread needs its own.
//!
//! [`encode_jpeg`] makes JPEG files of pixels, and measures the error.
//!
//! This crate knows neither Arrow nor files, and starts no threads.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

#[cfg(target_endian = "big")]
compile_error!("rows are little-endian, and are not converted");

mod byte_streams;
mod codec;
mod decoder;
mod dictionary;
mod dtype;
mod encoder;
mod error;
mod frame;
mod jpeg;
mod numbers;
mod row_type;

pub use codec::Codec;
pub use decoder::Decoder;
pub use dictionary::{DICTIONARY_BYTES_MAX, Dictionary, SMALL_ROW_BYTES_MAX};
pub use dtype::Dtype;
pub use encoder::Encoder;
pub use error::{Error, Result};
pub use frame::check_header;
pub use jpeg::{JpegSize, encode_jpeg};
pub use row_type::{ROW_BYTES_MAX, RowType};

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
