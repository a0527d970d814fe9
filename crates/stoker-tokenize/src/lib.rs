//! Turns texts into token ids.
//!
//! ```text
//! tokenizer.json ──read──► TextTokenizer ◄── TokenOptions
//! text ─────────────────────────┴──► ids: cut, with special tokens ──► list of any length
//!                                                                └──► padded to one length, with a mask
//! ```
//!
//! [`TextTokenizer`] has the tokenizer of a `tokenizer.json`, as the library `tokenizers` of Hugging Face writes it, with
//! the [`TokenOptions`] that say how long rows are. The library does the work; its ids are those of the Python package of
//! the same name. Its settings of truncation and padding are replaced by the options.
//!
//! Regular expressions of a file are run by fancy-regex. An expression that goes back more than a million times in one
//! text gives up there, and the rest of the text is one piece.
//!
//! This crate starts no threads, reads no file but the one that [`read_file`] is given, and does not depend on Arrow, SQL
//! or gRPC.

mod error;
mod file;
mod options;
mod saved;
mod text_tokenizer;

pub use error::{BadText, Error, Result};
pub use file::{FILE_BYTES_MAX, read_file};
pub use options::{Padding, Side, TEXT_BYTES_MAX, TokenOptions, TokenType};
pub use text_tokenizer::TextTokenizer;

#[cfg(test)]
mod tests;

/// Measures the memory that the target of `tests/fuzz.rs` holds.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
