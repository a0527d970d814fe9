//! Errors of addresses, TLS and connections.

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a server cannot be reached, or a connection to it cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address or a setting is not valid: fix it.
    #[error("{reason}")]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
    /// No connection to the server could be opened: retry.
    #[error("cannot reach {target}: {reason}")]
    Unreachable {
        /// The server.
        target: String,
        /// Why.
        reason: String,
    },
    /// The connection broke, or the server violated its protocol: retry, maybe with another server.
    #[error("the connection to the server was interrupted: {reason}")]
    Interrupted {
        /// How it broke.
        reason: String,
    },
}

impl Error {
    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Error::Invalid { reason: reason.into() }
    }

    pub(crate) fn broken(reason: impl Into<String>) -> Self {
        Error::Interrupted { reason: reason.into() }
    }
}
