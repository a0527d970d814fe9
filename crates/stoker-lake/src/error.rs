//! Errors of lakes and tables.

use std::error::Error as StdError;

use lance_core::error::CommitStatusUnknownError;
use object_store::client::{HttpError, HttpErrorKind};
use stoker_types::{ErrorKind, plain_message};

use crate::breaker::Out;
use crate::caught::Panicked;
use crate::lake::without_secrets;
use crate::sectors::Damage;

/// Parts of Lance's messages about bytes that it cannot decode. The types of these errors are those of I/O errors.
const UNDECODABLE: [&str; 4] = [
    "failed to decode Protobuf message",
    "unknown enumeration value",
    "file size is too small",
    "does not have sufficient data",
];

/// Parts of object_store's messages about responses by which a store asks for fewer requests. The types of these
/// errors are private.
const OVERLOADED: [&str; 3] = ["status code: 429", "status code: 503", "SlowDown"];

/// Parts of object_store's messages about responses of stores that do not support a kind of request: "method not
/// allowed", "not implemented".
const NOT_ALLOWED: [&str; 2] = ["status code: 405", "status code: 501"];

/// Parts of object_store's messages about responses of stores that do not accept the credentials of a request.
const DENIED: [&str; 5] = [
    "status code: 401",
    "status code: 403",
    "<Code>ExpiredToken<",
    "<Code>InvalidToken<",
    "<Code>TokenRefreshRequired<",
];

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a lake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URI of a lake cannot be used.
    #[error("cannot open a lake at {uri:?}: {reason}")]
    InvalidUri {
        /// The URI, without credentials.
        uri: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The store of a lake is not atomic, so that commits would be lost.
    #[error("{lake} cannot be written, commits would be lost: {reason}; use a store that creates objects atomically")]
    UnsafeStore {
        /// The lake and its endpoint.
        lake: String,
        /// What failed.
        reason: String,
    },
    /// A table, version, tag or row does not exist.
    #[error("{what} does not exist{hint}")]
    NotFound {
        /// What was looked for, and where.
        what: String,
        /// What exists instead, beginning with `; ` or empty.
        hint: String,
    },
    /// A table that should be created exists already.
    #[error("table {table} already exists in {lake}; append to it, overwrite it or choose another name")]
    TableExists {
        /// The table.
        table: String,
        /// The lake.
        lake: String,
    },
    /// A tag that should be created exists already.
    #[error("tag '{tag}' of table {table} already exists and names version {version}; delete it first")]
    TagExists {
        /// The table.
        table: String,
        /// The tag.
        tag: String,
        /// The version that it names.
        version: u64,
    },
    /// Rows were chosen by a version of the table, and another commit came after that version.
    #[error("another ingest committed version {version} of table {table} meanwhile; run the same command again")]
    Overtaken {
        /// The table.
        table: String,
        /// The version of the other commit.
        version: u64,
    },
    /// The data does not fit the table.
    #[error("cannot write to table {table}: {reason}")]
    InvalidData {
        /// The table.
        table: String,
        /// Which column and row, what was expected and what was found.
        reason: String,
    },
    /// A request names something that the table does not have, or asks for something impossible.
    #[error("{attempted}: {reason}")]
    InvalidRequest {
        /// What was attempted, on which table.
        attempted: String,
        /// Why it cannot be done.
        reason: String,
    },
    /// Stored bytes are damaged.
    #[error("{attempted}: the data is damaged: {reason}")]
    DataCorrupt {
        /// What was attempted, on which table or file.
        attempted: String,
        /// What was found.
        reason: String,
    },
    /// Stored bytes of some rows are damaged; other rows of the same file may be intact.
    #[error("{attempted}: the data is damaged: {reason}")]
    DamagedRows {
        /// What was attempted, on which table.
        attempted: String,
        /// Which bytes of which file.
        reason: String,
    },
    /// A client created as many objects or bytes beside the tables as the server allows it in a day.
    #[error(
        "{holder} has used up its {limit} per day, which new streams and runs write to the lake: use streams that were \
         planned before, try again in {hours} h, or ask the operator of the server for a higher limit \
         (--reader-objects-per-day, --reader-bytes-per-day)"
    )]
    AllowanceSpent {
        /// The client that the allowance belongs to.
        holder: String,
        /// The limit that was reached, for example `10 bytes`.
        limit: String,
        /// Hours until the next period of the allowance begins.
        hours: u64,
    },
    /// Whether a commit took effect is unknown.
    #[error(
        "{attempted}: the outcome is unknown: {reason}; check whether the newest version has the rows before you write \
         them again"
    )]
    OutcomeUnknown {
        /// What was attempted, on which table.
        attempted: String,
        /// Why it is unknown.
        reason: String,
    },
    /// A request to storage failed.
    #[error("{attempted}: {}", first_line(source))]
    Storage {
        /// What was attempted, on which URI.
        attempted: String,
        /// The kind that follows from the cause.
        kind: ErrorKind,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// The kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidUri { .. }
            | Error::UnsafeStore { .. }
            | Error::InvalidData { .. }
            | Error::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::TableExists { .. } | Error::TagExists { .. } => ErrorKind::AlreadyExists,
            Error::Overtaken { .. } | Error::OutcomeUnknown { .. } => ErrorKind::Unavailable,
            Error::AllowanceSpent { .. } => ErrorKind::ResourceExhausted,
            Error::DataCorrupt { .. } | Error::DamagedRows { .. } => ErrorKind::DataCorrupt,
            Error::Storage { kind, .. } => *kind,
        }
    }

    /// Whether the store has more requests than it can serve: it said so, or it did not respond before the timeout.
    pub fn is_overload(&self) -> bool {
        let Error::Storage { kind: ErrorKind::Unavailable, source, .. } = self else { return false };
        let text = source.to_string();
        OVERLOADED.iter().any(|part| text.contains(part)) || is_timeout(source.as_ref())
    }

    /// Whether the request failed or was held back during an outage of the store. A retry may follow at once without
    /// load on the store: during an outage, requests are held back until the store answers one of them, each for five
    /// seconds at most.
    pub fn is_outage(&self) -> bool {
        let Error::Storage { kind: ErrorKind::Unavailable, source, .. } = self else { return false };
        causes(source.as_ref()).any(|cause| cause.is::<Out>())
    }

    /// Makes an error of the storage layer, whose kind follows from its cause.
    pub(crate) fn storage(attempted: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let (attempted, source) = (attempted.into(), source.into());
        if let Some(damaged) = Damage::error(&attempted, source.as_ref()) {
            return damaged;
        }
        match classify(source.as_ref()) {
            ErrorKind::DataCorrupt => Error::DataCorrupt { attempted, reason: first_line(&source) },
            kind => Error::Storage { attempted, kind, source },
        }
    }
}

/// Returns the first line of a message in plain words, at most 400 characters. Lance's source locations are left out,
/// and so are the user and query parts of URLs, which may hold credentials and signatures.
pub(crate) fn first_line(source: &(impl std::fmt::Display + ?Sized)) -> String {
    let text = plain_message(&source.to_string());
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(", /").next().unwrap_or(line).split(", library/").next().unwrap_or(line);
    let words: Vec<String> = line.split(' ').map(without_secrets).collect();
    words.join(" ").chars().take(400).collect()
}

/// Whether the request may succeed when it is retried: the store failed or could not be reached.
pub(crate) fn is_transient(error: &object_store::Error) -> bool {
    classify(error).is_transient()
}

/// Whether a store refused the credentials of a request, or refused the request to their owner.
pub(crate) fn is_denied(error: &object_store::Error) -> bool {
    match error {
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => true,
        object_store::Error::Generic { store: "LocalFileSystem", .. } => false,
        object_store::Error::Generic { .. } => {
            let text = error.to_string();
            DENIED.iter().any(|part| text.contains(part))
        }
        _ => false,
    }
}

/// Derives the kind of an error from its chain of causes.
fn classify(source: &(dyn StdError + 'static)) -> ErrorKind {
    let mut current = Some(source);
    let mut kind = ErrorKind::Internal;
    while let Some(error) = current {
        if let Some(error) = error.downcast_ref::<object_store::Error>() {
            return match error {
                object_store::Error::NotFound { .. } => ErrorKind::NotFound,
                object_store::Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
                object_store::Error::InvalidPath { .. } | object_store::Error::NotSupported { .. } => {
                    ErrorKind::InvalidRequest
                }
                // Lance holds this file's bytes in memory, and a range beyond their end was requested.
                object_store::Error::Generic { store: "memory" | "InMemory", .. } => ErrorKind::DataCorrupt,
                // An error of Lance that passed through this crate's stores.
                object_store::Error::Generic { store: "N/A", source } => classify(source.as_ref()),
                object_store::Error::NotImplemented { .. } => ErrorKind::PermissionDenied,
                error if is_denied(error) || is_not_allowed(error) => ErrorKind::PermissionDenied,
                error => refused_by_system(error).unwrap_or(ErrorKind::Unavailable),
            };
        }
        if error.is::<Panicked>() {
            return ErrorKind::DataCorrupt;
        }
        // The outcome of the commit is unknown, whatever error the store returned last.
        if error.is::<CommitStatusUnknownError>() {
            return ErrorKind::Unavailable;
        }
        if error.downcast_ref::<tokio::task::JoinError>().is_some_and(|error| error.is_panic()) {
            return ErrorKind::Internal;
        }
        if let Some(error) = error.downcast_ref::<std::io::Error>() {
            kind = match error.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    ErrorKind::PermissionDenied
                }
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::ResourceExhausted,
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData => ErrorKind::DataCorrupt,
                _ if is_impossible(error) => ErrorKind::DataCorrupt,
                _ => ErrorKind::Unavailable,
            };
            if error.get_ref().is_none() {
                return kind;
            }
        }
        if let Some(error) = error.downcast_ref::<lance_core::Error>() {
            kind = match error {
                lance_core::Error::NotFound { .. }
                | lance_core::Error::DatasetNotFound { .. }
                | lance_core::Error::VersionNotFound { .. }
                | lance_core::Error::RefNotFound { .. } => return ErrorKind::NotFound,
                lance_core::Error::DatasetAlreadyExists { .. } => return ErrorKind::AlreadyExists,
                lance_core::Error::CorruptFile { .. } => return ErrorKind::DataCorrupt,
                lance_core::Error::InvalidInput { .. }
                | lance_core::Error::SchemaMismatch { .. }
                | lance_core::Error::Schema { .. }
                | lance_core::Error::FieldNotFound { .. }
                | lance_core::Error::NotSupported { .. }
                | lance_core::Error::InvalidRef { .. } => ErrorKind::InvalidRequest,
                lance_core::Error::RefConflict { .. } => return ErrorKind::AlreadyExists,
                lance_core::Error::CommitConflict { .. }
                | lance_core::Error::RetryableCommitConflict { .. }
                | lance_core::Error::TooMuchWriteContention { .. }
                | lance_core::Error::Timeout { .. } => ErrorKind::Unavailable,
                lance_core::Error::IO { source, .. } if is_undecodable(source.as_ref()) => {
                    return ErrorKind::DataCorrupt;
                }
                lance_core::Error::IO { .. } => ErrorKind::Unavailable,
                _ => kind,
            };
        }
        current = error.source();
    }
    kind
}

/// Whether the store does not support this kind of request.
fn is_not_allowed(source: &object_store::Error) -> bool {
    let text = source.to_string();
    NOT_ALLOWED.iter().any(|part| text.contains(part))
}

/// An error and its causes, outermost first.
fn causes<'a>(source: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(source), |error: &&'a (dyn StdError + 'static)| (*error).source())
}

/// Whether the response, or the rest of its body, did not arrive before the timeout.
fn is_timeout(source: &(dyn StdError + 'static)) -> bool {
    let mut errors = causes(source).filter_map(|error| error.downcast_ref::<HttpError>());
    errors.any(|error| error.kind() == HttpErrorKind::Timeout)
}

/// Whether the system refused an offset that no file can have.
fn is_impossible(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidInput && error.raw_os_error().is_some()
}

/// Whether bytes were read but could not be decoded. This crate does not name the types of the decoders' errors, so
/// it compares messages.
fn is_undecodable(source: &dyn StdError) -> bool {
    let text = source.to_string();
    UNDECODABLE.iter().any(|part| text.contains(part))
}

/// Derives the kind from an operating system's error inside a generic error, as local stores report them. A local
/// file that ends early is damaged; a response body from a remote store that ends early was only cut off.
fn refused_by_system(source: &object_store::Error) -> Option<ErrorKind> {
    let is_local = matches!(source, object_store::Error::Generic { store: "LocalFileSystem", .. });
    let mut current = source.source();
    while let Some(error) = current {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                    Some(ErrorKind::PermissionDenied)
                }
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    Some(ErrorKind::ResourceExhausted)
                }
                std::io::ErrorKind::UnexpectedEof if is_local => Some(ErrorKind::DataCorrupt),
                _ if is_local && is_impossible(io) => Some(ErrorKind::DataCorrupt),
                _ => None,
            };
        }
        current = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use stoker_types::ErrorKind;

    use super::Error;

    fn kind(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ErrorKind {
        Error::storage("reading", source).kind()
    }

    #[test]
    fn undecodable_bytes_are_damage_and_other_faults_are_not() {
        let io = |text: &str| lance_core::Error::io(text.to_string());
        assert_eq!(kind(io("failed to decode Protobuf message: invalid wire type")), ErrorKind::DataCorrupt);
        assert_eq!(kind(io("Invalid format: file size is too small")), ErrorKind::DataCorrupt);
        assert_eq!(kind(io("connection reset")), ErrorKind::Unavailable);
    }

    #[test]
    fn a_commit_of_unknown_outcome_is_no_bug() {
        let conflict = || lance_core::Error::io("a conflict, and the manifest could not be read back".to_string());
        let unknown = lance_core::Error::commit_status_unknown_source(34, Box::new(conflict()));
        assert_eq!(kind(unknown), ErrorKind::Unavailable);
        let unknown = lance_core::Error::commit_status_unknown_source(34, "no answer".into());
        assert_eq!(kind(unknown), ErrorKind::Unavailable);
    }

    #[test]
    fn offsets_that_no_file_has_are_damage() {
        const EINVAL: i32 = 22;
        assert_eq!(kind(std::io::Error::from_raw_os_error(EINVAL)), ErrorKind::DataCorrupt);
        let wrapped =
            |store| object_store::Error::Generic { store, source: Box::new(std::io::Error::from_raw_os_error(EINVAL)) };
        assert_eq!(kind(wrapped("LocalFileSystem")), ErrorKind::DataCorrupt);
        assert_eq!(kind(wrapped("S3")), ErrorKind::Unavailable);
    }
}
