//! Errors of the protocol.

use stoker_types::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the protocol, or of the other end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value is not valid.
    #[error(transparent)]
    Types(#[from] stoker_types::Error),
    /// There is no memory for a batch.
    #[error(transparent)]
    Batch(#[from] stoker_batch::Error),
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
    /// The handle of a prepared statement was changed, is no such handle, or has a signature that does not fit its key.
    #[error("the handle of the prepared statement is not valid: {reason}; prepare the statement again")]
    InvalidHandle {
        /// The fault of the handle.
        reason: &'static str,
    },
    /// The handle of a prepared statement expired: it is too old, its key is unknown to this server, or its parameters
    /// are gone.
    #[error("the prepared statement is no longer valid: {reason}; prepare it again and bind its parameters")]
    ExpiredHandle {
        /// The reason why the handle is not valid any more.
        reason: String,
    },
    /// The cookie of a session of Flight SQL was changed, is no such cookie, or has a signature that does not fit its key.
    #[error("the cookie of the session is not valid: {reason}; connect again")]
    InvalidSession {
        /// The fault of the cookie.
        reason: &'static str,
    },
    /// The cookie of a session of Flight SQL expired: it was not used for too long, or its key is unknown to this server.
    #[error("the session is no longer valid: {reason}; connect again and set its options")]
    ExpiredSession {
        /// The reason why the session is not valid any more.
        reason: String,
    },
    /// The descriptor of a poll was changed, is no such descriptor, or has a signature that does not fit its key.
    #[error("the descriptor of the poll is not valid: {reason}; poll with the descriptor of the stream again")]
    InvalidPoll {
        /// The fault of the descriptor.
        reason: &'static str,
    },
    /// The descriptor of a poll expired: it is too old, or its key is unknown to this server.
    #[error("the descriptor of the poll is no longer valid: {reason}; poll with the descriptor of the stream again")]
    ExpiredPoll {
        /// The reason why the descriptor is not valid any more.
        reason: String,
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
    /// A bug, or a peer that violates the protocol.
    #[error("internal: {reason}")]
    Internal {
        /// The rule that was broken.
        reason: String,
    },
}

impl Error {
    /// Returns the kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Types(error) => error.kind(),
            Error::Batch(error) => error.kind(),
            Error::Remote { kind, .. } => *kind,
            Error::Unreachable { .. } | Error::Interrupted { .. } => ErrorKind::Unavailable,
            Error::InvalidTicket { .. }
            | Error::InvalidHandle { .. }
            | Error::InvalidSession { .. }
            | Error::InvalidPoll { .. } => ErrorKind::Unauthenticated,
            Error::ExpiredTicket { .. }
            | Error::ExpiredHandle { .. }
            | Error::ExpiredSession { .. }
            | Error::ExpiredPoll { .. } => ErrorKind::Expired,
            Error::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Error::ResourceExhausted { .. } => ErrorKind::ResourceExhausted,
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    /// Makes the error of a request that cannot be understood.
    pub fn invalid(reason: impl Into<String>) -> Self {
        Error::InvalidRequest { reason: reason.into() }
    }

    /// Makes the error of a connection that broke.
    pub fn broken(reason: impl Into<String>) -> Self {
        Error::Interrupted { reason: reason.into() }
    }

    /// Makes the error of a bug, or of a peer that violates the protocol.
    pub fn internal(reason: impl ToString) -> Self {
        Error::Internal { reason: reason.to_string() }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
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
