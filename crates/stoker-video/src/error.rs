//! Errors of indexes and clips.

use std::fmt;

use stoker_libav::DecodeError;
use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a file gives no index or no clip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadVideo {
    /// What is wrong with the file, as text for users.
    pub reason: String,
}

impl BadVideo {
    pub(crate) fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl fmt::Display for BadVideo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<DecodeError> for BadVideo {
    fn from(error: DecodeError) -> Self {
        Self::new(error)
    }
}

/// An error of the options of a clip.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A clip with an invalid option.
    #[error("video clip: {option} {reason}")]
    InvalidClip {
        /// The name of the option.
        option: &'static str,
        /// The value of the option, and the allowed values.
        reason: String,
    },
}

impl Error {
    pub(crate) fn clip(option: &'static str, reason: impl Into<String>) -> Self {
        Error::InvalidClip { option, reason: reason.into() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidClip { .. } => ErrorKind::InvalidRequest,
        }
    }
}
