//! HPACK, the compression of HTTP/2 headers: <https://www.rfc-editor.org/rfc/rfc7541>.
//!
//! Requests are encoded without compression. The decoder supports all that a server may use, with bounded memory.

mod decoder;
mod encoder;
#[cfg(test)]
mod fuzz;
mod huffman;
mod static_table;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use encoder::{Indexing, put_field};

/// The most bytes of an answer's headers, before and after decompression. Each field counts 32 bytes more than its name
/// and value.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

/// The reason why a header block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBlock {
    /// The block ends in the middle of a field.
    #[error("its headers end in the middle of a field")]
    CutOff,
    /// A number does not fit.
    #[error("its headers have a number that is too large")]
    Number,
    /// An index names no entry of a table.
    #[error("its headers refer to a table entry that does not exist")]
    Index,
    /// The dynamic table is resized where that is not allowed, or beyond its limit.
    #[error("its headers resize the table of fields at a wrong place, or beyond its limit")]
    Resize,
    /// A text is not in the Huffman code of the standard.
    #[error("its headers have text with an invalid Huffman code")]
    Code,
    /// The headers are longer than [`HEADER_BYTES_MAX`].
    #[error("its headers have more than {HEADER_BYTES_MAX} bytes")]
    TooLong,
}
