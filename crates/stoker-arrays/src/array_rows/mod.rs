//! Rows of arrays whose elements lie one after the other in files.
//!
//! ```text
//! ArrayColumn: element, shape, place in a row ─┐
//! RowBytes: the bytes of rows, in order ──────┴► ArrayBlock ──┐
//!                                                 ArrayBlock … ┴► ArrayReader: rows of all blocks, side by side
//! ArrayParts: what is read after one another ──► ArrayFiles
//! ```
//!
//! The first dimension of an array is the rows. Rows of numbers with one dimension become scalars, rows of floats with one
//! more dimension vectors, and other rows tensors, as for arrays that Python writes. Flags in tensors become UInt8.

mod block;
mod column;
mod decode;
mod element;
mod files;
mod fortran;
mod reader;

pub(crate) use block::{ArrayBlock, FileRows, RowBytes};
pub(crate) use column::{ArrayColumn, ROW_BYTES_MAX};
pub(crate) use element::{ArrayElement, ElementLayout, ElementOrder};
pub(crate) use files::{ArrayFiles, ArrayParts};
pub(crate) use fortran::{FORTRAN_READS_MAX, FortranRows};
pub(crate) use reader::ArrayReader;
