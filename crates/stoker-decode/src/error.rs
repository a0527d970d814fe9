//! Errors of decoding.

use std::fmt;

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file gives no pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage {
    /// What is wrong with the file, for people.
    pub reason: String,
}

impl BadImage {
    pub(crate) fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

impl fmt::Display for BadImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// What stands in the way of tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A transform that no image fits.
    #[error("image transform: {option} {reason}")]
    InvalidTransform {
        /// The option.
        option: &'static str,
        /// Its value, and what it must be.
        reason: String,
    },
    /// A column of another type.
    #[error("images are decoded from columns of binary values, not of {found}")]
    NotBinary {
        /// The type of the column.
        found: String,
    },
    /// A row that holds no image, or one that is damaged or too large.
    #[error("the image in row {row} cannot be decoded: {reason}")]
    BadImage {
        /// The row of the column; where several are bad, the first.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The system gives no threads.
    #[error("starting {num_threads} threads that decode images: {source}")]
    Threads {
        /// How many were wanted.
        num_threads: usize,
        /// The system's reason.
        source: rayon::ThreadPoolBuildError,
    },
    /// A bug.
    #[error("internal: {reason}")]
    Internal {
        /// Which rule was broken.
        reason: String,
    },
}

impl Error {
    /// What a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidTransform { .. } | Error::NotBinary { .. } => ErrorKind::InvalidRequest,
            Error::BadImage { .. } => ErrorKind::DataCorrupt,
            Error::Threads { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn transform(option: &'static str, reason: impl Into<String>) -> Self {
        Error::InvalidTransform { option, reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}
