//! Errors of executing statements.

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of executing a statement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The statement cannot be executed as it is.
    #[error("{what}: {reason}")]
    Refused {
        /// The refused part of the statement.
        what: String,
        /// Why it is refused, and what to write instead.
        reason: String,
    },
    /// Something that the statement names does not exist.
    #[error("{what} not found: {reason}")]
    NotFound {
        /// The name that was not found.
        what: String,
        /// The names that exist.
        reason: String,
    },
    /// Something that the statement creates exists already.
    #[error("{what} exists already; {remedy}")]
    Exists {
        /// What exists.
        what: String,
        /// What to write instead.
        remedy: &'static str,
    },
    /// Others committed during each evaluation of the statement. Nothing was changed.
    #[error(
        "the rows that the statement changes in table {table} were changed by others during all of its \
         {num_evaluations} evaluations, last by version {version}: {what}; try again when fewer write to the table"
    )]
    Contention {
        /// The table.
        table: String,
        /// The version of the last commit that came in between.
        version: u64,
        /// What it changed.
        what: String,
        /// How often the statement was evaluated.
        num_evaluations: u32,
    },
    /// The statement failed for one row of its parameters, after it was executed for the rows before.
    #[error("row {row} of the parameters: {source}; the statement was executed for the rows before it")]
    Row {
        /// The row, counted from 1.
        row: usize,
        /// Why the statement failed for it.
        source: Box<Error>,
    },
    /// A bug in this crate.
    #[error("internal error: {reason}")]
    Internal {
        /// Which invariant failed.
        reason: String,
    },
    /// The text cannot be read.
    #[error(transparent)]
    Dialect(#[from] stoker_dialect::Error),
    /// A name is not valid.
    #[error(transparent)]
    Name(#[from] stoker_types::Error),
    /// The lake refused the change or failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// A query of the statement cannot be planned or run.
    #[error(transparent)]
    Query(#[from] stoker_sql::Error),
    /// What streams left in the lake cannot be cleaned up.
    #[error(transparent)]
    Streams(#[from] stoker_stream::Error),
    /// What ingests left in the lake cannot be cleaned up.
    #[error(transparent)]
    Ingests(#[from] stoker_ingest::Error),
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Refused { .. } | Error::Dialect(_) => ErrorKind::InvalidRequest,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Exists { .. } => ErrorKind::AlreadyExists,
            Error::Contention { .. } => ErrorKind::Unavailable,
            Error::Row { source, .. } => source.kind(),
            Error::Internal { .. } => ErrorKind::Internal,
            Error::Name(source) => source.kind(),
            Error::Lake(source) => source.kind(),
            Error::Query(source) => source.kind(),
            Error::Streams(source) => source.kind(),
            Error::Ingests(source) => source.kind(),
        }
    }

    pub(crate) fn refused(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Refused { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Error::Internal { reason: reason.into() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}
