//! Errors of tokenizers.

use std::fmt;
use std::io;

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a text has no token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadText {
    /// What is wrong with the text, as text for users.
    pub reason: String,
}

impl BadText {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into() }
    }
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for BadText {}

/// An error of making a tokenizer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file that cannot be read.
    #[error("reading the tokenizer {file}: {source}")]
    Read {
        /// The path of the file.
        file: String,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file that is too large.
    #[error("the tokenizer {file} has {bytes} bytes, more than the limit of {max}")]
    TooLarge {
        /// The path of the file, or what the text is called.
        file: String,
        /// Its bytes.
        bytes: u64,
        /// The most bytes.
        max: u64,
    },
    /// A file that holds no tokenizer.
    #[error("{file} is no tokenizer.json of the library tokenizers: {reason}")]
    NotATokenizer {
        /// The path of the file, or what the text is called.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A tokenizer with an invalid option.
    #[error("tokenizer {file}: {option} {reason}")]
    InvalidOption {
        /// The path of the file, or what the text is called.
        file: String,
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
            Error::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => ErrorKind::NotFound,
            Error::Read { .. } | Error::TooLarge { .. } | Error::NotATokenizer { .. } | Error::InvalidOption { .. } => {
                ErrorKind::InvalidRequest
            }
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
