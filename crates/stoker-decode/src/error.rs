//! Errors of decoding.

use std::fmt;

use stoker_types::{ErrorKind, HasKind};

use crate::{Jpeg, LoadError, Takes};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a value cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// What is wrong with the value, as text for users.
    pub reason: String,
    /// Whether the decoder failed, which says nothing about the value: no other row may replace this one.
    pub is_fatal: bool,
}

impl BadValue {
    /// Makes the reason.
    pub fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), is_fatal: false }
    }

    /// Makes the reason why the decoder failed, whatever the value is.
    pub fn fatal(reason: impl ToString) -> Self {
        Self { reason: reason.to_string(), is_fatal: true }
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// An error of configuring a decoder or of decoding.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A transform with an invalid option.
    #[error("{transform}: {option} {reason}")]
    InvalidTransform {
        /// What is configured, such as `image transform`.
        transform: &'static str,
        /// The name of the option.
        option: &'static str,
        /// The value of the option, and the allowed values.
        reason: String,
    },
    /// A column that does not hold files.
    #[error("{}, not of {found}", wanted(*takes))]
    NotFiles {
        /// The type of the column.
        found: String,
        /// What was expected.
        takes: Takes,
    },
    /// A column of parameters that holds no numbers.
    #[error("files are decoded with parameters from columns of numbers, not of {found}")]
    NotNumbers {
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
    /// A transform that decodes JPEG files by libjpeg-turbo, and a decoder that was created without the library.
    #[error("the image transform decodes JPEG files by {jpeg:?}, and libjpeg-turbo is not loaded")]
    NoTurbo {
        /// The option of the transform.
        jpeg: Jpeg,
    },
    /// libjpeg-turbo could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
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

/// Which columns a decoder takes, for messages.
fn wanted(takes: Takes) -> &'static str {
    match takes {
        Takes::Files => "files are decoded from columns of binary values",
        Takes::FileLists => "lists of files are decoded from columns of lists of binary values",
        Takes::Texts => "texts are decoded from columns of text",
        Takes::FilesOrTexts => "values are decoded from columns of binary values or text",
    }
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidTransform { .. }
            | Error::NotFiles { .. }
            | Error::NotNumbers { .. }
            | Error::NoTurbo { .. } => ErrorKind::InvalidRequest,
            Error::Load(_) => ErrorKind::NotFound,
            Error::BadImage { .. } => ErrorKind::DataCorrupt,
            Error::Threads { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Makes the error of an option of a transform.
    pub fn invalid(transform: &'static str, option: &'static str, reason: impl Into<String>) -> Self {
        Error::InvalidTransform { transform, option, reason: reason.into() }
    }

    pub(crate) fn transform(option: &'static str, reason: impl Into<String>) -> Self {
        Self::invalid("image transform", option, reason)
    }

    /// Makes the error of a bug.
    pub fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
