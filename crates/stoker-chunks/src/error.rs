//! Errors of the chunk scan.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use stoker_types::ErrorKind;

use crate::Fault;

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
    /// The bytes of a row do not have its checksum, in two reads.
    #[error("row address {address:#x} is damaged: {reason}")]
    BadRow {
        /// The address.
        address: u64,
        /// Which column was read.
        column: String,
        /// Which checksums, which data file.
        reason: String,
    },
    /// A body, or the answer to a request, stayed away.
    #[error("{attempted}: no byte came for {}", seconds(*waited))]
    Stalled {
        /// What was attempted, on which file.
        attempted: String,
        /// How long was waited.
        waited: Duration,
    },
    /// Transient faults went on until the retries were used up.
    #[error("{attempted} failed {attempts} times in {}, last: {}", seconds(*elapsed), reason_of(source, attempted))]
    GaveUp {
        /// What was attempted, on which file.
        attempted: String,
        /// Attempts in all.
        attempts: u32,
        /// From the first attempt to the end of the last.
        elapsed: Duration,
        /// How the last attempt failed.
        source: Box<Error>,
    },
    /// The system gives no memory for a batch.
    #[error(
        "the system gives this process no {bytes} bytes of memory for a batch: use a smaller batch size or memory budget"
    )]
    OutOfMemory {
        /// Bytes that were asked for.
        bytes: usize,
    },
    /// A folder that cannot keep chunks.
    #[error("cannot use {} as cache_dir: {source}", dir.display())]
    CacheFolder {
        /// The folder.
        dir: PathBuf,
        /// What is in the way.
        source: io::Error,
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
            Error::ShuttingDown | Error::Stalled { .. } => ErrorKind::Unavailable,
            Error::GaveUp { source, .. } => source.kind(),
            Error::OutOfMemory { .. } => ErrorKind::ResourceExhausted,
            Error::CacheFolder { .. } => ErrorKind::InvalidRequest,
            Error::UnknownRow { .. } | Error::BadRow { .. } => ErrorKind::DataCorrupt,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Whether a store says, or shows by staying away, that it gets more requests than it takes.
    pub(crate) fn is_overload(&self) -> bool {
        match self {
            Error::Lake(error) => error.is_overload(),
            Error::Stalled { .. } => true,
            _ => false,
        }
    }

    /// What was attempted, as far as the error knows.
    pub(crate) fn attempted(&self) -> &str {
        match self {
            Error::Lake(stoker_lake::Error::Storage { attempted, .. })
            | Error::Stalled { attempted, .. }
            | Error::GaveUp { attempted, .. } => attempted,
            _ => "a read",
        }
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

/// A message without what was attempted, where it begins with that.
fn reason_of(error: &Error, attempted: &str) -> String {
    let text = error.to_string();
    let reason = text.strip_prefix(attempted).and_then(|rest| rest.strip_prefix(": "));
    reason.map_or_else(|| text.clone(), str::to_string)
}

/// Seconds for people.
fn seconds(span: Duration) -> String {
    let decimals = if span < Duration::from_secs(10) { 1 } else { 0 };
    format!("{:.decimals$} s", span.as_secs_f64())
}
