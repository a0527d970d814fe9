//! Compressed headers: <https://www.rfc-editor.org/rfc/rfc7541>.
//!
//! Requests are encoded without compression. Answers are decoded with all that a server may use; what they take is bounded.

mod decoder;
mod encoder;
mod huffman;
mod static_table;

pub(crate) use decoder::Decoder;
pub(crate) use encoder::{Indexing, put_field};

/// Bytes of an answer's headers at most, before and after decompression; 32 are added for each field.
pub(crate) const HEADER_BYTES_MAX: usize = 64 << 10;

/// Why a block of headers cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadBlock {
    #[error("its headers end in the middle of a field")]
    CutOff,
    #[error("its headers have a number that is too large")]
    Number,
    #[error("its headers refer to a field that nobody sent")]
    Index,
    #[error("its headers resize their table where they must not")]
    Resize,
    #[error("its headers have text with an unknown code")]
    Code,
    #[error("its headers have more than {HEADER_BYTES_MAX} bytes")]
    TooLong,
}
