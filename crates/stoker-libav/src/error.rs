//! Errors of loading the library and of decoding.

use std::fmt;

use stoker_types::{ErrorKind, HasKind};

/// No usable libavcodec was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The files and names that were tried, in this order, each with the reason why it was not used.
    pub tried: Vec<(String, String)>,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no libavcodec of a major version from 59 to 62 was found, which videos, Opus and some other sounds need; tried ")?;
        for (index, (place, reason)) in self.tried.iter().enumerate() {
            write!(f, "{}{place} ({reason})", if index == 0 { "" } else { "; " })?;
        }
        f.write_str("; install it with `pip install av`, or as the package libavcodec of the distribution")
    }
}

impl std::error::Error for LoadError {}

impl HasKind for LoadError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::NotFound
    }
}

/// An error of decoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The library was built without a decoder for the codec.
    #[error("libavcodec has no decoder for {codec}")]
    NoDecoder {
        /// The name of the codec in FFmpeg.
        codec: &'static str,
    },
    /// The decoder cannot be opened, as its extradata is damaged or memory is short.
    #[error("the decoder for {codec} cannot be opened: {reason}")]
    Open {
        /// The name of the codec in FFmpeg.
        codec: &'static str,
        /// The text of libavcodec.
        reason: String,
    },
    /// A packet was refused.
    #[error("a packet of {num_bytes} bytes cannot be decoded: {reason}")]
    Packet {
        /// The length of the packet.
        num_bytes: usize,
        /// The text of libavcodec.
        reason: String,
    },
    /// The decoder takes no packet before its frames are received.
    #[error("the decoder is full: receive its frames first")]
    Full,
    /// No frame could be made of the packets.
    #[error("a frame cannot be decoded: {reason}")]
    Frame {
        /// The text of libavcodec, or the property of the frame that is not allowed.
        reason: String,
    },
    /// A frame has pixels of an unknown format.
    #[error("frames with pixels of the format {name} ({number}) are not supported")]
    PixelFormat {
        /// The name of the format in FFmpeg.
        name: String,
        /// The number of the format in this version of FFmpeg.
        number: i32,
    },
}

impl HasKind for DecodeError {
    fn kind(&self) -> ErrorKind {
        match self {
            DecodeError::NoDecoder { .. } => ErrorKind::NotFound,
            DecodeError::Open { .. } | DecodeError::Packet { .. } | DecodeError::Frame { .. } => ErrorKind::DataCorrupt,
            DecodeError::Full => ErrorKind::Internal,
            DecodeError::PixelFormat { .. } => ErrorKind::InvalidRequest,
        }
    }
}
