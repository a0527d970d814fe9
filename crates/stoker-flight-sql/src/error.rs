//! Errors of reading requests and of making answers.

use std::fmt;

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A request that cannot be read, or an answer that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A request that cannot be understood.
    #[error("{reason}")]
    InvalidRequest {
        /// The fault of the request.
        reason: String,
    },
    /// A request that is larger than allowed.
    #[error("{reason}")]
    TooLarge {
        /// The limit that was passed.
        reason: String,
    },
    /// A bug.
    #[error("internal: {reason}")]
    Internal {
        /// The rule that was broken.
        reason: String,
    },
}

impl Error {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Error::InvalidRequest { reason: reason.into() }
    }

    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Error::TooLarge { reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl fmt::Display) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Error::TooLarge { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }
}
