//! Errors of decoding.

use std::fmt;

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a file gives no pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadImage {
    /// What is wrong with the file, as text for users.
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

/// An error of configuring a decoder or of decoding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A transform with an invalid option.
    #[error("image transform: {option} {reason}")]
    InvalidTransform {
        /// The name of the option.
        option: &'static str,
        /// The value of the option, and the allowed values.
        reason: String,
    },
    /// A column that does not have a binary type.
    #[error("images are decoded from columns of binary values, not of {found}")]
    NotBinary {
        /// The type of the column.
        found: String,
    },
    /// A row that is null, or whose image is damaged, too large or in another format.
    #[error("the image in row {row} cannot be decoded: {reason}")]
    BadImage {
        /// The index of the row in the column; the first one if several are bad.
        row: usize,
        /// What is wrong with the row.
        reason: String,
    },
    /// The operating system started no threads.
    #[error("starting {num_threads} threads that decode images: {source}")]
    Threads {
        /// The requested number of threads.
        num_threads: usize,
        /// The error of the operating system.
        source: rayon::ThreadPoolBuildError,
    },
    /// A bug in this crate.
    #[error("internal: {reason}")]
    Internal {
        /// Which invariant failed.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
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

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
