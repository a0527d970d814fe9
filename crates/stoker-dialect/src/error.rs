//! Errors of reading queries.

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A query that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The query cannot be accepted as it is.
    #[error("{what}: {reason}")]
    Refused {
        /// The refused part of the query.
        what: String,
        /// Why it is refused, and what to write instead.
        reason: String,
    },
}

impl Error {
    pub(crate) fn refused(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Error::Refused { what: what.into(), reason: reason.into() }
    }
}
