//! Errors of streams.

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in a stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query or its row set failed.
    #[error(transparent)]
    Sql(#[from] stoker_sql::Error),
    /// Reading heavy columns failed.
    #[error(transparent)]
    Chunks(#[from] stoker_chunks::Error),
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// An option or specification is not valid.
    #[error(transparent)]
    Types(#[from] stoker_types::Error),
    /// A stream that nobody planned, or whose specification was removed.
    #[error("no specification of stream {stream_id} is in {lake}; plan the stream again from its query")]
    UnknownStream {
        /// The stream id.
        stream_id: String,
        /// Where it was looked for.
        lake: String,
    },
    /// A row set that does not belong to a specification.
    #[error("the rows of stream {stream_id} changed: {reason}")]
    RowSetMismatch {
        /// The stream id.
        stream_id: String,
        /// Expected and found.
        reason: String,
    },
    /// A receipt that cannot be used.
    #[error("cannot use the receipt: {reason}")]
    Receipt {
        /// What is wrong with it.
        reason: String,
    },
    /// A bug in Stoker.
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
            Error::Sql(error) => error.kind(),
            Error::Chunks(error) => error.kind(),
            Error::Lake(error) => error.kind(),
            Error::Types(error) => error.kind(),
            Error::Receipt { .. } => ErrorKind::InvalidRequest,
            Error::UnknownStream { .. } => ErrorKind::NotFound,
            Error::RowSetMismatch { .. } => ErrorKind::StateMismatch,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// An error of assembling Arrow data, which is a bug.
    pub(crate) fn arrow(source: arrow_schema::ArrowError) -> Self {
        Error::Internal { reason: source.to_string() }
    }
}
