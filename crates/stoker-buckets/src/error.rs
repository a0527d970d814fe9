//! Errors of buckets.

use std::io;

use stoker_store::first_line;
use stoker_types::ErrorKind;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a file of a bucket cannot be read. The messages name no object: whoever reports them does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A URI or an option that no store has.
    #[error("{reason}")]
    Invalid {
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// Neither an object nor a folder of this name exists.
    #[error("there is no such object, and no object below it")]
    Missing,
    /// The store refuses the request to the owner of these credentials.
    #[error("the store denies access: {reason}")]
    Denied {
        /// What the store says.
        reason: String,
    },
    /// The object is another one than the one that was listed.
    #[error("{change}")]
    Changed {
        /// What differs.
        change: String,
    },
    /// The store did not answer, or failed, after all retries.
    #[error("{reason}")]
    Unavailable {
        /// What the store says.
        reason: String,
    },
}

impl Error {
    /// Makes the error for what a store says of an object that was listed or is looked for.
    pub(crate) fn of_store(source: object_store::Error) -> Self {
        let is_missing = matches!(source, object_store::Error::NotFound { .. });
        let kind = stoker_store::Error::storage("reading", source, |_| None);
        let reason = match &kind {
            stoker_store::Error::Storage { source, .. } => first_line(source),
            other => first_line(other),
        };
        match kind.kind() {
            _ if is_missing => Self::gone(),
            ErrorKind::PermissionDenied => Self::Denied { reason },
            ErrorKind::InvalidRequest => Self::Invalid { reason },
            _ => Self::Unavailable { reason },
        }
    }

    /// Makes the error for an object that was listed and does not exist any more.
    pub(crate) fn gone() -> Self {
        Self::Changed { change: "it does not exist any more".into() }
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns the error of this crate in an error of a read, if there is one.
    pub fn of_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<Error> for io::Error {
    /// Returns an error of a read, whose source is this error.
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Invalid { .. } => io::ErrorKind::InvalidInput,
            Error::Missing => io::ErrorKind::NotFound,
            Error::Denied { .. } => io::ErrorKind::PermissionDenied,
            Error::Changed { .. } | Error::Unavailable { .. } => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
