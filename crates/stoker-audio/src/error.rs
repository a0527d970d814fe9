//! Errors of decoding.

use std::fmt;

use stoker_libav::DecodeError;
use stoker_types::{ErrorKind, HasKind};
use symphonia::core::errors;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a file gives no samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadSound {
    /// What is wrong with the file, as text for users.
    pub reason: String,
    /// Whether a library is missing, which says nothing about the file.
    pub is_fatal: bool,
}

impl BadSound {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_fatal: false }
    }

    pub(crate) fn fatal(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), is_fatal: true }
    }
}

impl fmt::Display for BadSound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for BadSound {}

impl From<errors::Error> for BadSound {
    fn from(error: errors::Error) -> Self {
        match error {
            errors::Error::IoError(_) => Self::new("the file ends early"),
            errors::Error::ResetRequired => Self::new("the tracks of the file change in the middle"),
            error => Self::new(error.to_string()),
        }
    }
}

impl From<DecodeError> for BadSound {
    fn from(error: DecodeError) -> Self {
        Self::new(error.to_string())
    }
}

/// An error of configuring a decoder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A clip with an invalid option.
    #[error("audio clip: {option} {reason}")]
    InvalidClip {
        /// The name of the option.
        option: &'static str,
        /// The value of the option, and the allowed values.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidClip { .. } => ErrorKind::InvalidRequest,
        }
    }

    pub(crate) fn clip(option: &'static str, reason: impl Into<String>) -> Self {
        Error::InvalidClip { option, reason: reason.into() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
