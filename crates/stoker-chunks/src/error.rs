//! Errors of the chunk scan.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use stoker_types::{ErrorKind, HasKind};

use crate::Fault;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a chunk scan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// There is no memory for a batch.
    #[error(transparent)]
    Batch(#[from] stoker_batch::Error),
    /// A row address belongs to no row of the table.
    #[error("row address {address:#x} of column {column} is in no fragment of the table")]
    UnknownRow {
        /// The address.
        address: u64,
        /// The column that was read.
        column: String,
    },
    /// The bytes of a row did not match its checksum in two reads.
    #[error("row address {address:#x} is damaged: {reason}")]
    BadRow {
        /// The address.
        address: u64,
        /// The column that was read.
        column: String,
        /// The two checksums and the data file.
        reason: String,
    },
    /// A response, or the next bytes of its body, did not arrive in time.
    #[error("{attempted}: no bytes arrived for {}", seconds(*waited))]
    Stalled {
        /// The attempted operation and its file.
        attempted: String,
        /// How long the read waited.
        waited: Duration,
    },
    /// Transient faults continued until the retry budget was used up.
    #[error("{attempted} failed {attempts} times in {}, last: {}", seconds(*elapsed), reason_of(source, attempted))]
    GaveUp {
        /// The attempted operation and its file.
        attempted: String,
        /// The number of attempts, the first one included.
        attempts: u32,
        /// The time from the first attempt to the end of the last one.
        elapsed: Duration,
        /// The error of the last attempt.
        source: Box<Error>,
    },
    /// The configured cache folder cannot be used.
    #[error("cannot use {} as cache_dir: {source}", dir.display())]
    CacheFolder {
        /// The folder.
        dir: PathBuf,
        /// Why it cannot be used.
        source: io::Error,
    },
    /// The process is ending: the runtime on which the read ran was shut down.
    #[error("the process is shutting down")]
    ShuttingDown,
    /// A bug in Stoker.
    #[error("internal: {reason}")]
    Internal {
        /// The rule that was broken.
        reason: String,
    },
}

impl Error {
    /// Returns the kind, which says what a caller should do about the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Lake(error) => error.kind(),
            Error::ShuttingDown | Error::Stalled { .. } => ErrorKind::Unavailable,
            Error::GaveUp { source, .. } => source.kind(),
            Error::Batch(error) => error.kind(),
            Error::CacheFolder { .. } => ErrorKind::InvalidRequest,
            Error::UnknownRow { .. } | Error::BadRow { .. } => ErrorKind::DataCorrupt,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Returns whether the store reports that it gets too many requests, or shows it by not answering.
    pub(crate) fn is_overload(&self) -> bool {
        match self {
            Error::Lake(error) => error.is_overload(),
            Error::Stalled { .. } => true,
            _ => false,
        }
    }

    /// Returns the attempted operation, if the error contains it.
    pub(crate) fn attempted(&self) -> &str {
        match self {
            Error::Lake(stoker_lake::Error::Storage { attempted, .. })
            | Error::Stalled { attempted, .. }
            | Error::GaveUp { attempted, .. } => attempted,
            _ => "a read",
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}

impl Fault for Error {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }

    fn is_outage(&self) -> bool {
        match self {
            Error::Lake(error) => error.is_outage(),
            Error::GaveUp { source, .. } => source.is_outage(),
            _ => false,
        }
    }
}

impl Fault for stoker_lake::Error {
    fn kind(&self) -> ErrorKind {
        self.kind()
    }

    fn is_outage(&self) -> bool {
        self.is_outage()
    }
}

/// Returns an error's message without the attempted operation, if it begins with that.
fn reason_of(error: &Error, attempted: &str) -> String {
    let text = error.to_string();
    let reason = text.strip_prefix(attempted).and_then(|rest| rest.strip_prefix(": "));
    reason.map_or_else(|| text.clone(), str::to_string)
}

/// Formats a duration in seconds.
fn seconds(span: Duration) -> String {
    let decimals = if span < Duration::from_secs(10) { 1 } else { 0 };
    format!("{:.decimals$} s", span.as_secs_f64())
}
