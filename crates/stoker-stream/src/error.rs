//! Errors of streams.

use stoker_types::{ErrorKind, HasKind, Snapshot};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a stream.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query or its row set failed.
    #[error(transparent)]
    Sql(#[from] stoker_sql::Error),
    /// Reading heavy columns failed.
    #[error(transparent)]
    Chunks(#[from] stoker_chunks::Error),
    /// An operation on the lake failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// An option or specification is not valid.
    #[error(transparent)]
    Types(#[from] stoker_types::Error),
    /// A batch does not fit, or too many of its rows are bad.
    #[error(transparent)]
    Batch(#[from] stoker_batch::Error),
    /// The stream was never planned, or its specification was removed.
    #[error("no specification of stream {stream_id} is in {lake}; plan the stream again from its query")]
    UnknownStream {
        /// The stream id.
        stream_id: String,
        /// The lake that was searched.
        lake: String,
    },
    /// A row set does not belong to the specification.
    #[error("the rows of stream {stream_id} changed: {reason}")]
    RowSetMismatch {
        /// The stream id.
        stream_id: String,
        /// What was expected and what was found.
        reason: String,
    },
    /// The queries of a mixture do not have the same columns.
    #[error("query {} of the mixture has {reason}; all need the same names and types, in the same order", query + 1)]
    Columns {
        /// The index of the query, from zero.
        query: usize,
        /// The difference.
        reason: String,
    },
    /// A query of a mixture has no rows.
    #[error("query {} of the mixture selects no rows; leave it out", query + 1)]
    EmptySource {
        /// The index of the query, from zero.
        query: usize,
    },
    /// A column that determines the rows of an epoch cannot be used.
    #[error("{option} column {column:?}: {reason}")]
    EpochColumn {
        /// What the column is for, such as `weight`.
        option: &'static str,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The temporary file with a number for each of many rows cannot be written or read.
    #[error(
        "the temporary file of the weights or lengths of rows failed: {source}; it takes 4 bytes per row, in the folder that \
         TMPDIR names"
    )]
    RowNumbers {
        /// The reason.
        source: std::io::Error,
    },
    /// A row is bad every time it is read.
    #[error(
        "row {address:#x} of {table} is bad: {reason}; use bad_rows=\"substitute\" to continue with another row in its \
         place, or exclude the row with `stoker quarantine`"
    )]
    BadRow {
        /// The table and its version.
        table: String,
        /// The row's address.
        address: u64,
        /// What is wrong with the row, and where.
        reason: String,
    },
    /// No row can replace a bad row, because all rows of the window are bad.
    #[error("cannot substitute row {address:#x}: all {rows} rows of its window are bad; the last bad row: {reason}")]
    NoSubstitute {
        /// The address of the bad row.
        address: u64,
        /// The number of rows in the window.
        rows: u64,
        /// What is wrong with the last row of the window that was read.
        reason: String,
    },
    /// A run was started with another stream.
    #[error(
        "run {run_id} was started with another stream: {}; use the options of the run in all its processes, or another \
         run_id",
        differences.join("; ")
    )]
    RunMismatch {
        /// The run.
        run_id: String,
        /// One line for each difference.
        differences: Vec<String>,
    },
    /// A run was started by another principal.
    #[error("run {run_id} was started by another user: use another run id to log, or a token with the role write")]
    RunOfAnother {
        /// The run.
        run_id: String,
    },
    /// A run cannot be created.
    #[error(
        "cannot create run {run_id}: its processes agree on one stream through an object in the lake, and this object \
         cannot be written: {source}"
    )]
    RunNotStored {
        /// The run.
        run_id: String,
        /// The reason.
        source: stoker_lake::Error,
    },
    /// A receipt cannot be used.
    #[error("cannot use the receipt: {reason}")]
    Receipt {
        /// What is wrong with the receipt.
        reason: String,
    },
    /// A cleanup removed a snapshot of the stream.
    #[error(
        "the snapshot {snapshot} was removed by a cleanup of old versions, with its rows: stream a newer version; \
         cleanups keep versions with a tag, so tag versions that streams and states still need"
    )]
    SnapshotRemoved {
        /// The table and the version.
        snapshot: Snapshot,
    },
    /// A bug in Stoker.
    #[error("internal: {reason}")]
    Internal {
        /// The rule that was broken.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of this error, which tells a caller what to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Sql(error) => error.kind(),
            Error::Chunks(error) => error.kind(),
            Error::Lake(error) => error.kind(),
            Error::Types(error) => error.kind(),
            Error::Batch(error) => error.kind(),
            Error::Receipt { .. } | Error::Columns { .. } | Error::EmptySource { .. } | Error::EpochColumn { .. } => {
                ErrorKind::InvalidRequest
            }
            Error::RowNumbers { .. } => ErrorKind::ResourceExhausted,
            Error::BadRow { .. } | Error::NoSubstitute { .. } => ErrorKind::DataCorrupt,
            Error::RunMismatch { .. } => ErrorKind::StateMismatch,
            Error::RunOfAnother { .. } => ErrorKind::PermissionDenied,
            Error::RunNotStored { source, .. } => source.kind(),
            Error::UnknownStream { .. } | Error::SnapshotRemoved { .. } => ErrorKind::NotFound,
            Error::RowSetMismatch { .. } => ErrorKind::StateMismatch,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Converts an error of assembling Arrow data, which is a bug in Stoker.
    pub(crate) fn arrow(source: arrow_schema::ArrowError) -> Self {
        Error::Internal { reason: source.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
