//! Errors of codecs and frames.

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A codec that does not exist, a row that cannot be compressed, or a frame that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A codec or level that does not exist.
    #[error("codec {codec:?}: {reason}")]
    NoCodec {
        /// The codec as it was given.
        codec: String,
        /// What is wrong with it, and what there is.
        reason: String,
    },
    /// A shape or a type of elements that rows cannot have.
    #[error("{reason}")]
    NoRow {
        /// What is wrong with the shape or the type.
        reason: String,
    },
    /// Bytes that are no dictionary.
    #[error("{reason}")]
    NoDictionary {
        /// What is wrong with them.
        reason: String,
    },
    /// A frame that is damaged, that is one of other rows, or that needs another dictionary.
    #[error("{reason}")]
    BadFrame {
        /// What is wrong with the frame.
        reason: String,
    },
    /// A library that refused to work, or a row of another size than its type says.
    #[error("internal: {reason}")]
    Internal {
        /// What failed.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::NoCodec { .. } | Error::NoRow { .. } => ErrorKind::InvalidRequest,
            Error::NoDictionary { .. } | Error::BadFrame { .. } => ErrorKind::DataCorrupt,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn bad_frame(reason: impl ToString) -> Self {
        Error::BadFrame { reason: reason.to_string() }
    }

    pub(crate) fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
