//! The coarse kinds of errors that callers act on.

use std::fmt;

/// What a caller should do about an error. Every crate's error has a `kind()`.
///
/// The service maps kinds to gRPC codes and the Python package maps them to exceptions, each in one exhaustive function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request can never succeed as it is: malformed SQL, unknown column, bad option. Fix the request.
    InvalidRequest,
    /// A named thing does not exist: table, version, tag, file. Fix the name.
    NotFound,
    /// Something would be created that exists. Choose another name or mode.
    AlreadyExists,
    /// Credentials or a signature are missing or wrong. Provide valid ones.
    Unauthenticated,
    /// The credentials are valid and do not allow this. Ask for access.
    PermissionDenied,
    /// A ticket is too old. Ask for a new one with the cursor.
    Expired,
    /// A state, ticket or row set belongs to other data or other options. Use the matching one.
    StateMismatch,
    /// Stored bytes are damaged. Restore them; retrying does not help.
    DataCorrupt,
    /// Storage or a server cannot be reached now. Retry with backoff.
    Unavailable,
    /// A configured limit was reached. Lower the demand or raise the limit.
    ResourceExhausted,
    /// The caller went away or asked to stop.
    Cancelled,
    /// A bug in Stoker. Report it.
    Internal,
}

impl ErrorKind {
    /// All kinds, in order of declaration.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::InvalidRequest,
        ErrorKind::NotFound,
        ErrorKind::AlreadyExists,
        ErrorKind::Unauthenticated,
        ErrorKind::PermissionDenied,
        ErrorKind::Expired,
        ErrorKind::StateMismatch,
        ErrorKind::DataCorrupt,
        ErrorKind::Unavailable,
        ErrorKind::ResourceExhausted,
        ErrorKind::Cancelled,
        ErrorKind::Internal,
    ];

    /// The stable name that travels between servers and clients, for example `not_found`.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::InvalidRequest => "invalid_request",
            ErrorKind::NotFound => "not_found",
            ErrorKind::AlreadyExists => "already_exists",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::PermissionDenied => "permission_denied",
            ErrorKind::Expired => "expired",
            ErrorKind::StateMismatch => "state_mismatch",
            ErrorKind::DataCorrupt => "data_corrupt",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::ResourceExhausted => "resource_exhausted",
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::Internal => "internal",
        }
    }

    /// The kind with this stable name.
    pub fn parse(name: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::Unavailable)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
