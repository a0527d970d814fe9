//! Errors of streams.

use stoker_types::{ErrorKind, Snapshot};

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
    /// The queries of a mixture do not have the same columns.
    #[error("query {} of the mixture has {reason}; all need the same names and types, in the same order", query + 1)]
    Columns {
        /// Which query, from zero.
        query: usize,
        /// What differs.
        reason: String,
    },
    /// A query of a mixture without rows.
    #[error("query {} of the mixture selects no rows; leave it out", query + 1)]
    EmptySource {
        /// Which query, from zero.
        query: usize,
    },
    /// A row that is bad every time it is read.
    #[error(
        "row {address:#x} of {table} is bad: {reason}; bad_rows=\"substitute\" goes on without it, and `stoker quarantine` excludes it"
    )]
    BadRow {
        /// The table and its version.
        table: String,
        /// The row's address.
        address: u64,
        /// What is wrong with it, and where.
        reason: String,
    },
    /// No row can take the place of a bad one.
    #[error("no row can take the place of row {address:#x}: all {rows} rows of its window are bad, the last: {reason}")]
    NoSubstitute {
        /// The address of the bad row.
        address: u64,
        /// Rows in the window.
        rows: u64,
        /// What is wrong with the last one.
        reason: String,
    },
    /// More rows of a window are bad than may be.
    #[error(
        "{num_bad} of the {num_rows} rows of a window are bad, and at most {num_max} may be; the last: {last}. So many are no accident: \
         look at the table and its storage with `stoker doctor`, exclude the rows with `stoker quarantine`, or raise max_bad_share"
    )]
    TooManyBadRows {
        /// Bad rows that were met in the window.
        num_bad: u64,
        /// Rows in the window.
        num_rows: u64,
        /// How many of them may be bad.
        num_max: u64,
        /// The last one, and what is wrong with it.
        last: String,
    },
    /// A run that was started with another stream.
    #[error("run {run_id} streams something else: {}", differences.join("; "))]
    RunMismatch {
        /// The run.
        run_id: String,
        /// One line for each difference.
        differences: Vec<String>,
    },
    /// A run that somebody else began.
    #[error("run {run_id} was begun by another: log under another run id, or with the role write")]
    RunOfAnother {
        /// The run.
        run_id: String,
    },
    /// A run that cannot be created.
    #[error(
        "run {run_id} cannot be created: processes agree on it through the lake, which cannot be written: {source}"
    )]
    RunNotStored {
        /// The run.
        run_id: String,
        /// Why.
        source: stoker_lake::Error,
    },
    /// A step that the log of a run does not hold.
    #[error("step {step} of run {run_id} is unknown: {reason}")]
    UnknownStep {
        /// The run.
        run_id: String,
        /// The step.
        step: u64,
        /// What the log holds.
        reason: String,
    },
    /// A step that a state does not hold.
    #[error("step {step} is not known from the state: {reason}; the log of a run holds all steps")]
    UnknownStateStep {
        /// The step.
        step: u64,
        /// What the state holds.
        reason: String,
    },
    /// A receipt that cannot be used.
    #[error("cannot use the receipt: {reason}")]
    Receipt {
        /// What is wrong with it.
        reason: String,
    },
    /// A batch that this machine cannot hold.
    #[error(
        "a batch of {rows} rows takes {}, and this process may have {} of memory: use a smaller batch size",
        gigabytes(*bytes),
        gigabytes(*memory_bytes)
    )]
    BatchTooLarge {
        /// Rows of the rank's largest batch, with padding.
        rows: u64,
        /// Bytes that it takes.
        bytes: u64,
        /// Bytes that there are.
        memory_bytes: u64,
    },
    /// A snapshot of the stream that a cleanup removed.
    #[error(
        "the snapshot {snapshot} was removed by a cleanup of old versions, and its rows with it: stream a newer version, \
         and tag versions that streams and states name, which keeps them"
    )]
    SnapshotRemoved {
        /// Table and version.
        snapshot: Snapshot,
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
            Error::Receipt { .. } | Error::Columns { .. } | Error::EmptySource { .. } => ErrorKind::InvalidRequest,
            Error::BadRow { .. } | Error::NoSubstitute { .. } | Error::TooManyBadRows { .. } => ErrorKind::DataCorrupt,
            Error::RunMismatch { .. } => ErrorKind::StateMismatch,
            Error::RunOfAnother { .. } => ErrorKind::PermissionDenied,
            Error::RunNotStored { source, .. } => source.kind(),
            Error::UnknownStream { .. } | Error::UnknownStep { .. } | Error::UnknownStateStep { .. } => {
                ErrorKind::NotFound
            }
            Error::SnapshotRemoved { .. } => ErrorKind::NotFound,
            Error::RowSetMismatch { .. } => ErrorKind::StateMismatch,
            Error::BatchTooLarge { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// An error of assembling Arrow data, which is a bug.
    pub(crate) fn arrow(source: arrow_schema::ArrowError) -> Self {
        Error::Internal { reason: source.to_string() }
    }
}

/// Bytes for people.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
