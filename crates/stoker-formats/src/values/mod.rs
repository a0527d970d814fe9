//! Columns of values that formats read one row at a time.
//!
//! ```text
//! bytes of a value ──format──► FieldValue ──BatchRows::push──► ValueBuilder, one for each column ──take──► RowBatch
//! ```

mod batch_rows;
mod fields;
mod numbers;
mod parse;
mod value_builder;

use std::borrow::Cow;

pub(crate) use batch_rows::BatchRows;
pub(crate) use fields::{Media, media_of, named_media, ragged, tensor};
pub(crate) use numbers::number_named;
pub(crate) use parse::{float, integer, json, text};

/// The most bytes of the values of a batch, apart from its last row, and of a single text or list. The offsets of both
/// have 32 bits.
pub(crate) const BATCH_BYTES_MAX: usize = 1 << 30;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FieldValue<'a> {
    /// No value.
    Null,
    /// A text, or JSON.
    Text(&'a str),
    /// The bytes of a file, or numbers with the least significant byte first: as many as a row of the column has.
    Bytes(Cow<'a, [u8]>),
    /// An int64.
    Integer(i64),
    /// A float64.
    Float(f64),
    /// An array with a shape of its own.
    Array {
        /// The size of each dimension.
        shape: Vec<i32>,
        /// Its numbers, with the least significant byte first.
        data: &'a [u8],
    },
}

impl FieldValue<'_> {
    /// Returns the number of bytes that the value takes in a batch.
    pub fn num_bytes(&self) -> usize {
        match self {
            Self::Null => 0,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::Integer(_) | Self::Float(_) => 8,
            Self::Array { shape, data } => shape.len() * 4 + data.len(),
        }
    }
}

#[cfg(test)]
mod tests;
