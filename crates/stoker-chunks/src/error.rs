//! Errors of the chunk scan.

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in a chunk scan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// A row address names no row of the table.
    #[error("row address {address:#x} lies in no fragment of {column}")]
    UnknownRow {
        /// The address.
        address: u64,
        /// Which column was read.
        column: String,
    },
    /// The process ends: the runtime that reads for it was shut down.
    #[error("the process is shutting down")]
    ShuttingDown,
    /// Slots were taken out before they were filled, or claimed twice.
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
            Error::Lake(error) => error.kind(),
            Error::ShuttingDown => ErrorKind::Unavailable,
            Error::UnknownRow { .. } => ErrorKind::DataCorrupt,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }
}
