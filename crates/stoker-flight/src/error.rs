//! Errors of the service and its client.

use std::time::Duration;

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, here or on the server.
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
    /// Images cannot be decoded as it was asked for.
    #[error(transparent)]
    Decode(#[from] stoker_decode::Error),
    /// A row whose image is damaged, too large or none.
    #[error(
        "{}; bad_rows=\"substitute\" goes on without it, and `stoker quarantine` excludes it",
        bad_image(column, place, reason)
    )]
    BadImage {
        /// The column.
        column: String,
        /// The row's ids and its position.
        place: String,
        /// What is wrong with the image.
        reason: String,
    },
    /// No row can take the place of one with a bad image.
    #[error("no row can take the place of {place}: all {rows} rows of its window are bad, the last: {reason}")]
    NoSubstitute {
        /// The bad row's ids and its position.
        place: String,
        /// Rows in the window.
        rows: u64,
        /// What is wrong with the last one.
        reason: String,
    },
    /// The server answered with an error.
    #[error("{message}")]
    Remote {
        /// The server's kind.
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
    /// Nobody answered, however often it was asked.
    #[error("{attempted} failed {attempts} times in {} s, last: {source}", elapsed.as_secs())]
    GaveUp {
        /// What was attempted.
        attempted: String,
        /// Attempts in all.
        attempts: u32,
        /// From the first attempt to the end of the last.
        elapsed: Duration,
        /// How the last attempt failed.
        source: Box<Error>,
    },
    /// A connection broke in the middle of an answer.
    #[error("the connection to the server was interrupted: {reason}")]
    Interrupted {
        /// How it broke.
        reason: String,
    },
    /// A ticket was changed, or signed with a key that nobody has.
    #[error("the ticket is not valid: {reason}; ask for a new one")]
    InvalidTicket {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A ticket that was valid.
    #[error("the ticket is not valid any more: {reason}; ask for a new one with the cursor")]
    ExpiredTicket {
        /// Why.
        reason: String,
    },
    /// The token is missing or wrong.
    #[error("{reason}")]
    Unauthenticated {
        /// What is missing.
        reason: String,
    },
    /// The principal's role does not allow this.
    #[error("{reason}")]
    Forbidden {
        /// What was asked for, which role it takes, and which there is.
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
        /// What is wrong with it.
        reason: String,
    },
    /// A limit of the server.
    #[error("{reason}")]
    ResourceExhausted {
        /// Which limit, and what to do.
        reason: String,
    },
    /// A client takes nothing of an answer.
    #[error("the answer was cut: {reason}")]
    Unread {
        /// For how long nothing was taken, or who needs its place.
        reason: String,
    },
    /// The server stops.
    #[error("the server is stopping, reconnect")]
    Stopping,
    /// A bug, or a peer that does not keep the protocol.
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

    /// The error of the last of several attempts; the error itself after a single one.
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

/// What is wrong with a row whose image cannot be decoded: its column, its row ids and position, and why.
pub(crate) fn bad_image(column: &str, place: &str, reason: &str) -> String {
    format!("column {column}, {place}: the image cannot be decoded: {reason}")
}
