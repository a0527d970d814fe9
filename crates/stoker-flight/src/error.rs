//! Errors of the service and its client.

use std::time::Duration;

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this process or of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query engine failed.
    #[error(transparent)]
    Sql(#[from] stoker_sql::Error),
    /// A stream failed.
    #[error(transparent)]
    Stream(#[from] stoker_stream::Error),
    /// The lake failed.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// A value is not valid.
    #[error(transparent)]
    Types(#[from] stoker_types::Error),
    /// The options for decoding images are not valid, or an image cannot be decoded with them.
    #[error(transparent)]
    Decode(#[from] stoker_decode::Error),
    /// The image of a row is damaged, too large, or not an image.
    #[error(
        "{}; use bad_rows=\"substitute\" to continue with another row in its place, or exclude the row with \
         `stoker quarantine`",
        bad_image(column, place, reason)
    )]
    BadImage {
        /// The column of the image.
        column: String,
        /// The row's id in its table and its position in the epoch.
        place: String,
        /// The fault of the image.
        reason: String,
    },
    /// No row can substitute one with a bad image.
    #[error("cannot substitute {place}: all {rows} rows of its window are bad; the last bad row: {reason}")]
    NoSubstitute {
        /// The bad row's id in its table and its position in the epoch.
        place: String,
        /// The number of rows in the window.
        rows: u64,
        /// The fault of the last row that was tried.
        reason: String,
    },
    /// The server responded with an error.
    #[error("{message}")]
    Remote {
        /// The kind that the server gave the error.
        kind: ErrorKind,
        /// The server's message.
        message: String,
    },
    /// No server could be reached.
    #[error("cannot reach {target}: {reason}")]
    Unreachable {
        /// The servers that were tried.
        target: String,
        /// The last failure.
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
    /// A connection broke in the middle of a response.
    #[error("the connection to the server was interrupted: {reason}")]
    Interrupted {
        /// The error that broke the connection.
        reason: String,
    },
    /// A ticket was changed, is not a ticket, or has a signature that does not fit its key.
    #[error("the ticket is not valid: {reason}; request a new one")]
    InvalidTicket {
        /// The fault of the ticket.
        reason: &'static str,
    },
    /// A ticket expired: it is too old, its key or version is unknown to this server, or a table changed since
    /// planning.
    #[error("the ticket is no longer valid: {reason}; request a new one with the cursor")]
    ExpiredTicket {
        /// The reason why the ticket is not valid any more.
        reason: String,
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
    /// A call failed before a lake looked at it.
    #[error(transparent)]
    Call(#[from] stoker_types::calls::CallError),
    /// The caller does not wait any more.
    #[error("{attempted} was cancelled: the deadline of the request passed")]
    Deadline {
        /// What was attempted.
        attempted: String,
    },
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

impl From<stoker_net::Error> for Error {
    fn from(error: stoker_net::Error) -> Self {
        match error {
            stoker_net::Error::Invalid { reason } => Error::InvalidRequest { reason },
            stoker_net::Error::Unreachable { target, reason } => Error::Unreachable { target, reason },
            stoker_net::Error::Interrupted { reason } => Error::Interrupted { reason },
            error => Error::Internal { reason: error.to_string() },
        }
    }
}

impl Error {
    /// Returns the kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Sql(error) => error.kind(),
            Error::Stream(error) => error.kind(),
            Error::Lake(error) => error.kind(),
            Error::Types(error) => error.kind(),
            Error::Decode(error) => error.kind(),
            Error::BadImage { .. } | Error::NoSubstitute { .. } => ErrorKind::DataCorrupt,
            Error::Remote { kind, .. } => *kind,
            Error::GaveUp { source, .. } => source.kind(),
            Error::Unreachable { .. } | Error::Interrupted { .. } | Error::Unread { .. } | Error::Stopping => {
                ErrorKind::Unavailable
            }
            Error::InvalidTicket { .. } | Error::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            Error::Forbidden { .. } => ErrorKind::PermissionDenied,
            Error::Call(error) => error.kind(),
            Error::Deadline { .. } => ErrorKind::Cancelled,
            Error::ExpiredTicket { .. } => ErrorKind::Expired,
            Error::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Error::ResourceExhausted { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Wraps the last error of several attempts in [`Error::GaveUp`]; returns the error itself after one attempt.
    pub(crate) fn after(self, attempted: &str, attempts: u32, elapsed: Duration) -> Self {
        match attempts {
            0 | 1 => self,
            attempts => Error::GaveUp { attempted: attempted.to_string(), attempts, elapsed, source: Box::new(self) },
        }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Error::InvalidRequest { reason: reason.into() }
    }

    pub(crate) fn unauthenticated(reason: impl Into<String>) -> Self {
        Error::Unauthenticated { reason: reason.into() }
    }

    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Error::Interrupted { reason: reason.into() }
    }

    pub(crate) fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

/// Describes a row whose image cannot be decoded: its column, its row id and position (`place`), and the reason.
pub(crate) fn bad_image(column: &str, place: &str, reason: &str) -> String {
    format!("column {column}, {place}: the image cannot be decoded: {reason}")
}
