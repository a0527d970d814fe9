//! The coarse kinds of errors, by which callers decide what to do.

use std::fmt;

/// The kind of an error, which tells a caller what to do about it. The error type of every crate has a method `kind()`.
///
/// The service maps kinds to gRPC codes, and the Python package maps them to exceptions. Each mapping is one exhaustive
/// function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request can never succeed as it is: malformed SQL, unknown column, bad option. Fix the request.
    InvalidRequest,
    /// Something that the request names does not exist: a table, a version, a tag, a file. Fix the name.
    NotFound,
    /// The request would create something that already exists. Choose another name or mode.
    AlreadyExists,
    /// Credentials or a signature are missing or wrong. Provide valid ones.
    Unauthenticated,
    /// The credentials are valid and do not allow this. Ask for access.
    PermissionDenied,
    /// A ticket is too old. Request a new one with the cursor.
    Expired,
    /// A state, ticket or row set belongs to other data or other options. Use the matching one.
    StateMismatch,
    /// Stored bytes are damaged. Restore them; retrying does not help.
    DataCorrupt,
    /// Storage or a server cannot be reached at the moment. Retry with backoff.
    Unavailable,
    /// A configured limit was reached. Lower the demand or raise the limit.
    ResourceExhausted,
    /// The caller disconnected or cancelled the request.
    Cancelled,
    /// A bug in Stoker. Report it.
    Internal,
}

impl ErrorKind {
    /// All kinds in the order of their declaration.
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

    /// Returns the stable name that servers send to clients, for example `not_found`.
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

    /// Returns the kind with this stable name.
    pub fn parse(name: &str) -> Option<ErrorKind> {
        ErrorKind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns whether the same request may succeed later.
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::Unavailable)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with a kind. A layer keeps the errors of the layers below as boxes of this trait when it does not know their
/// types.
pub trait HasKind: std::error::Error + Send + Sync + 'static {
    /// Returns the kind of the error, which says what a caller should do about it.
    fn kind(&self) -> ErrorKind;
}
