//! Errors of lakes, in this process and behind servers.

use std::fmt;
use std::time::Duration;

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this process or of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a lower layer: of the engine, of the protocol, of a value or of a codec.
    #[error(transparent)]
    Lower(LowerError),
    /// A value of a row cannot be decoded: it is damaged, too large, or in another format.
    #[error(
        "{}; use bad_rows=\"substitute\" to continue with another row in its place, or exclude the row with \
         `stoker quarantine`",
        bad_value(column, noun, place, reason)
    )]
    BadValue {
        /// The column of the value.
        column: String,
        /// What the value should be, such as `image`.
        noun: &'static str,
        /// The row's id in its table and its position in the epoch.
        place: String,
        /// The fault of the value.
        reason: String,
    },
    /// A decoder failed at a row, which says nothing about the row.
    #[error("column {column}, {place}: the decoder failed: {reason}")]
    DecoderFailed {
        /// The column of the value.
        column: String,
        /// The row's id in its table and its position in the epoch.
        place: String,
        /// The decoder's error.
        reason: String,
    },
    /// No row can substitute one with a bad value.
    #[error("cannot substitute {place}: all {rows} rows of its window are bad; the last bad row: {reason}")]
    NoSubstitute {
        /// The bad row's id in its table and its position in the epoch.
        place: String,
        /// The number of rows in the window.
        rows: u64,
        /// The fault of the last row that was tried.
        reason: String,
    },
    /// All attempts within the retry budget failed.
    #[error("{attempted} failed {attempts} times in {} s, last: {source}", elapsed.as_secs())]
    GaveUp {
        /// The operation that was attempted.
        attempted: String,
        /// The number of attempts.
        attempts: u32,
        /// The time from the start of the first attempt to the end of the last.
        elapsed: Duration,
        /// The error of the last attempt.
        source: Box<Error>,
    },
    /// The request has no valid credentials: its token or client certificate is missing, unknown or expired.
    #[error("{reason}")]
    Unauthenticated {
        /// The credential that is missing or wrong.
        reason: String,
    },
    /// The principal's role does not allow this.
    #[error("{reason}")]
    Forbidden {
        /// The request, the role that it requires and the role that the principal has.
        reason: String,
    },
    /// The caller does not wait any more.
    #[error("{attempted} was cancelled: the deadline of the request passed")]
    Deadline {
        /// What was attempted.
        attempted: String,
    },
    /// Nobody knows whether a change took effect: the answer was lost after the statement was sent.
    #[error(
        "{attempted}: the outcome is unknown, because the answer was lost ({reason}); look with {look} before you repeat it"
    )]
    OutcomeUnknown {
        /// The statement that was sent: its first words.
        attempted: String,
        /// The error that lost the answer.
        reason: String,
        /// A statement that shows whether the change took effect.
        look: String,
    },
    /// A client cancelled the answer.
    #[error("the answer was cancelled by a client")]
    Cancelled,
    /// A request that cannot be understood.
    #[error("{reason}")]
    InvalidRequest {
        /// The fault of the request or the setting.
        reason: String,
    },
    /// A limit of the server was reached.
    #[error("{reason}")]
    ResourceExhausted {
        /// The limit that was reached, and what to do.
        reason: String,
    },
    /// A client read nothing of its response for too long, so that the server cut it.
    #[error("the server cancelled the answer: {reason}")]
    Unread {
        /// The time for which the client read nothing, or the fact that another client needed its permit.
        reason: String,
    },
    /// The server is stopping; or the client of this response went away.
    #[error("the server is stopping, reconnect")]
    Stopping,
    /// A bug, or a peer that violates the protocol.
    #[error("internal: {reason}")]
    Internal {
        /// The rule that was broken.
        reason: String,
    },
}

/// An error of a lower layer, of a type that this crate need not know.
#[derive(Debug)]
pub struct LowerError(Box<dyn HasKind>);

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for LowerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl<E: HasKind> From<E> for Error {
    fn from(error: E) -> Self {
        Error::Lower(LowerError(Box::new(error)))
    }
}

impl Error {
    /// Returns the kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Lower(LowerError(error)) => error.kind(),
            Error::BadValue { .. } | Error::NoSubstitute { .. } => ErrorKind::DataCorrupt,
            Error::GaveUp { source, .. } => source.kind(),
            Error::OutcomeUnknown { .. } | Error::Unread { .. } | Error::Stopping => ErrorKind::Unavailable,
            Error::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            Error::Forbidden { .. } => ErrorKind::PermissionDenied,
            Error::Deadline { .. } | Error::Cancelled => ErrorKind::Cancelled,
            Error::InvalidRequest { .. } | Error::DecoderFailed { .. } => ErrorKind::InvalidRequest,
            Error::ResourceExhausted { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Wraps the last error of several attempts in [`Error::GaveUp`]; returns the error itself after one attempt.
    pub fn after(self, attempted: &str, attempts: u32, elapsed: Duration) -> Self {
        match attempts {
            0 | 1 => self,
            attempts => Error::GaveUp { attempted: attempted.to_string(), attempts, elapsed, source: Box::new(self) },
        }
    }

    /// Returns the error of a lower layer, if it is of this type.
    pub fn lower<E: HasKind>(&self) -> Option<&E> {
        let Error::Lower(LowerError(error)) = self else { return None };
        let error: &(dyn std::error::Error + 'static) = error.as_ref();
        error.downcast_ref()
    }

    /// Makes the error of a request that cannot be understood.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Error::InvalidRequest { reason: reason.into() }
    }

    /// Makes the error of a request without valid credentials.
    pub fn unauthenticated(reason: impl Into<String>) -> Self {
        Error::Unauthenticated { reason: reason.into() }
    }

    /// Makes the error of a bug.
    pub fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

/// Describes a row with a value that cannot be decoded: its column, its row id and position (`place`), and the reason.
pub(crate) fn bad_value(column: &str, noun: &str, place: &str, reason: &str) -> String {
    format!("column {column}, {place}: the {noun} cannot be decoded: {reason}")
}
