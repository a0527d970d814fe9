//! Errors of functions, and of queries that end while a function or a rule runs.

use datafusion::error::DataFusionError;
use stoker_types::ErrorKind;

/// The reason why a function or a rule stops a query. DataFusion carries it as an external error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A function exceeded one of its limits.
    #[error("{reason}")]
    Exhausted {
        /// What the function needed, and the limit.
        reason: String,
    },
    /// A stored value cannot be decoded.
    #[error("{reason}")]
    Corrupt {
        /// The column and the row, and what is wrong with the value.
        reason: String,
    },
    /// The query was cancelled, because no client waits for it any more.
    #[error("the query was cancelled: no client waits for it any more")]
    Abandoned,
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Exhausted { .. } => ErrorKind::ResourceExhausted,
            Error::Corrupt { .. } => ErrorKind::DataCorrupt,
            Error::Abandoned => ErrorKind::Cancelled,
        }
    }

    pub(crate) fn exhausted(reason: impl Into<String>) -> Self {
        Error::Exhausted { reason: reason.into() }
    }

    pub(crate) fn corrupt(reason: impl Into<String>) -> Self {
        Error::Corrupt { reason: reason.into() }
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}
