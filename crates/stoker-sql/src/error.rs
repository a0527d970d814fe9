//! Errors of planning and running SQL, and the mapping of DataFusion's errors to kinds.

use arrow_schema::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use stoker_types::{Digest, ErrorKind, HasKind, Snapshot};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The prefix of internal column names, which are never shown to users.
pub(crate) const INTERNAL_PREFIX: &str = "__stoker";

/// An error of planning a query, running it, or turning it into a row set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query is larger than the engine accepts.
    #[error(
        "the query has {actual} {what}, the limit is {limit}: split it, or pass long lists as parameters or tables"
    )]
    TooLarge {
        /// The counted unit: `bytes`, `expression nodes`, `levels of nesting` and others.
        what: &'static str,
        /// How many the query has.
        actual: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The query cannot be accepted as it is.
    #[error("{what}: {reason}")]
    Refused {
        /// The refused part of the query.
        what: String,
        /// Why it is refused, and what to write instead.
        reason: String,
    },
    /// A table, version, tag or function in the query does not exist.
    #[error("{what} not found: {reason}")]
    NotFound {
        /// The name that was not found.
        what: String,
        /// The names that exist.
        reason: String,
    },
    /// The query runs as plain SQL, but its rows cannot be streamed as samples.
    #[error("not a sample query: {reason}")]
    NotSampleQuery {
        /// Why not, in plain words.
        reason: String,
    },
    /// DataFusion could not plan or run the query.
    #[error("{message}")]
    Query {
        /// The kind of the error, which tells what a caller should do.
        kind: ErrorKind,
        /// What went wrong, and in which part of the query.
        message: String,
        /// DataFusion's error.
        source: Box<DataFusionError>,
    },
    /// The lake failed.
    #[error(transparent)]
    Lake {
        /// The lake's error.
        #[from]
        source: stoker_lake::Error,
    },
    /// A stored row set is damaged.
    #[error("row set object _stoker/{path} is damaged: {reason}")]
    RowSetCorrupt {
        /// The object's path below `_stoker/`.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// Partial row sets do not make one row set.
    #[error("the partial row sets of table {table} do not fit together: {reason}")]
    PartialRowSets {
        /// The table whose rows they have.
        table: Snapshot,
        /// Why not.
        reason: String,
    },
    /// The bytes of a partial row set are damaged.
    #[error("the bytes of a partial row set are damaged: {reason}")]
    PartialRowSetCorrupt {
        /// What is wrong.
        reason: String,
    },
    /// The query selects other rows than the requested row set.
    #[error("the query selects row set {actual}, expected {expected}: the snapshots or the query differ")]
    RowSetMismatch {
        /// The requested digest.
        expected: Digest,
        /// The digest of the rows that the query selects.
        actual: Digest,
    },
    /// A requested row is outside the row set, or the requested rows are not ascending.
    #[error("row {ordinal} is outside the row set of {num_rows} rows, or the rows are not strictly ascending")]
    OrdinalOutOfRange {
        /// The row's ordinal, its index in the row set.
        ordinal: u64,
        /// The number of rows of the row set.
        num_rows: u64,
    },
    /// The query exceeded one of its limits, or too many queries run.
    #[error("{reason}")]
    Exhausted {
        /// What the query needed, and the limit.
        reason: String,
    },
    /// A bug in this crate.
    #[error("internal error: {reason}")]
    Internal {
        /// Which invariant failed.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error, which tells what a caller should do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::TooLarge { .. }
            | Error::Refused { .. }
            | Error::NotSampleQuery { .. }
            | Error::PartialRowSets { .. }
            | Error::OrdinalOutOfRange { .. } => ErrorKind::InvalidRequest,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::Query { kind, .. } => *kind,
            Error::Lake { source } => source.kind(),
            Error::RowSetCorrupt { .. } | Error::PartialRowSetCorrupt { .. } => ErrorKind::DataCorrupt,
            Error::RowSetMismatch { .. } => ErrorKind::StateMismatch,
            Error::Exhausted { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn exhausted(reason: impl Into<String>) -> Self {
        Error::Exhausted { reason: reason.into() }
    }

    pub(crate) fn refused(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Refused { what: what.into(), reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl Into<String>) -> Self {
        Error::Internal { reason: reason.into() }
    }
}

impl From<stoker_dialect::Error> for Error {
    fn from(error: stoker_dialect::Error) -> Self {
        match error {
            stoker_dialect::Error::Refused { what, reason } => Error::Refused { what, reason },
            error => Error::internal(error.to_string()),
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}

impl From<DataFusionError> for Error {
    /// Keeps the kind of the root error, so that for example a lake error keeps its kind.
    fn from(source: DataFusionError) -> Self {
        let (kind, message) = describe(&source);
        Error::Query { kind, message: without_internal_names(&message), source: Box::new(source) }
    }
}

impl From<ArrowError> for Error {
    fn from(source: ArrowError) -> Self {
        DataFusionError::from(source).into()
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

/// Returns the kind and the message of the error at the root of DataFusion's error chain.
fn describe(error: &DataFusionError) -> (ErrorKind, String) {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => describe(inner),
        DataFusionError::Shared(inner) => describe(inner),
        DataFusionError::Collection(errors) => {
            errors.first().map_or((ErrorKind::Internal, error.to_string()), describe)
        }
        DataFusionError::External(inner) => describe_external(inner.as_ref()),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => describe_external(inner.as_ref()),
            ArrowError::IoError(text, _) => (ErrorKind::Unavailable, text.clone()),
            ArrowError::MemoryError(text) => (ErrorKind::ResourceExhausted, text.clone()),
            other => (ErrorKind::InvalidRequest, other.to_string()),
        },
        DataFusionError::SchemaError(inner, _) => (ErrorKind::InvalidRequest, describe_schema(inner)),
        DataFusionError::SQL(inner, _) => (ErrorKind::InvalidRequest, format!("cannot parse the query: {inner}")),
        DataFusionError::IoError(inner) => (ErrorKind::Unavailable, inner.to_string()),
        DataFusionError::ResourcesExhausted(text) => (ErrorKind::ResourceExhausted, text.clone()),
        DataFusionError::ExecutionJoin(inner) if inner.is_cancelled() => (ErrorKind::Cancelled, inner.to_string()),
        DataFusionError::Internal(_) | DataFusionError::ExecutionJoin(_) | DataFusionError::Ffi(_) => {
            (ErrorKind::Internal, first_line(error))
        }
        _ => (ErrorKind::InvalidRequest, first_line(error)),
    }
}

/// Returns the kind and the message of the first error in the chain that has a kind.
fn describe_external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> (ErrorKind, String) {
    let mut link: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = link {
        if let Some(own) = current.downcast_ref::<Error>() {
            return (own.kind(), own.to_string());
        }
        if let Some(function) = current.downcast_ref::<stoker_functions::Error>() {
            return (function.kind(), function.to_string());
        }
        if let Some(lake) = current.downcast_ref::<stoker_lake::Error>() {
            return (lake.kind(), lake.to_string());
        }
        if let Some(chunks) = current.downcast_ref::<stoker_chunks::Error>() {
            return (chunks.kind(), chunks.to_string());
        }
        if let Some(inner) = current.downcast_ref::<DataFusionError>() {
            return describe(inner);
        }
        link = current.source();
    }
    (ErrorKind::Internal, error.to_string())
}

/// Describes a schema error. For an unknown column the message lists the columns that exist.
fn describe_schema(error: &SchemaError) -> String {
    match error {
        SchemaError::FieldNotFound { field, valid_fields } => {
            let known: Vec<String> = valid_fields
                .iter()
                .filter(|column| !column.name.starts_with(INTERNAL_PREFIX))
                .map(|column| column.quoted_flat_name())
                .collect();
            format!("unknown column {}; the columns here are: {}", field.quoted_flat_name(), known.join(", "))
        }
        other => other.to_string(),
    }
}

/// Replaces the names of hidden columns in a message, such as `__stoker_row_addr_0`.
fn without_internal_names(message: &str) -> String {
    let mut shown = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(INTERNAL_PREFIX) {
        let (before, name) = rest.split_at(start);
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
        shown.push_str(before);
        shown.push_str("a hidden column");
        rest = &name[end..];
    }
    shown + rest
}

fn first_line(error: &DataFusionError) -> String {
    error.strip_backtrace().lines().next().unwrap_or_default().to_string()
}
