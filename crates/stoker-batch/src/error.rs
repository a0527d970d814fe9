//! Errors of batches and their memory.

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a batch, or of its memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is not valid.
    #[error(transparent)]
    Types(#[from] stoker_types::Error),
    /// The operating system has no memory for a batch.
    #[error(
        "the operating system refused {bytes} bytes of memory for a batch: use a smaller batch size or memory budget"
    )]
    OutOfMemory {
        /// The number of bytes that were requested.
        bytes: usize,
    },
    /// More rows of a window are bad than the options allow.
    #[error(
        "{num_bad} of the {num_rows} rows of a window are bad, the limit is {num_max} (max_bad_share); the last bad \
         row: {last}; check the table and its storage with `stoker doctor`, exclude the rows with `stoker quarantine`, \
         or raise max_bad_share"
    )]
    TooManyBadRows {
        /// The number of bad rows that were found in the window.
        num_bad: u64,
        /// The number of rows in the window.
        num_rows: u64,
        /// The number of rows of the window that may be bad.
        num_max: u64,
        /// The last bad row, and what is wrong with it.
        last: String,
    },
    /// The log of a run does not contain a step.
    #[error("step {step} of run {run_id} is unknown: {reason}")]
    UnknownStep {
        /// The run.
        run_id: String,
        /// The step.
        step: u64,
        /// What the log contains.
        reason: String,
    },
    /// A state does not contain a step.
    #[error("the state does not contain step {step}: {reason}; the log of a run contains all steps")]
    UnknownStateStep {
        /// The step.
        step: u64,
        /// What the state contains.
        reason: String,
    },
    /// A batch does not fit into the memory of this machine.
    #[error(
        "a batch of {rows} rows takes {}, and this process may have {} of memory: use a smaller batch size",
        gigabytes(*bytes),
        gigabytes(*memory_bytes)
    )]
    BatchTooLarge {
        /// The number of rows of the rank's largest batch, with padding.
        rows: u64,
        /// The size of the batch in bytes.
        bytes: u64,
        /// The memory that this process may use, in bytes.
        memory_bytes: u64,
    },
    /// A bug in Stoker, or endpoints of different streams.
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
            Error::Types(error) => error.kind(),
            Error::OutOfMemory { .. } | Error::BatchTooLarge { .. } => ErrorKind::ResourceExhausted,
            Error::TooManyBadRows { .. } => ErrorKind::DataCorrupt,
            Error::UnknownStep { .. } | Error::UnknownStateStep { .. } => ErrorKind::NotFound,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}

/// Formats a number of bytes as gigabytes, for error messages.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}
