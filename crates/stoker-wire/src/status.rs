//! Maps kinds of errors to gRPC status codes, and back.
//!
//! | kind | code |
//! |---|---|
//! | invalid_request | INVALID_ARGUMENT |
//! | not_found | NOT_FOUND |
//! | already_exists | ALREADY_EXISTS |
//! | unauthenticated | UNAUTHENTICATED |
//! | permission_denied | PERMISSION_DENIED |
//! | expired, state_mismatch | FAILED_PRECONDITION |
//! | data_corrupt | DATA_LOSS |
//! | unavailable | UNAVAILABLE |
//! | resource_exhausted | RESOURCE_EXHAUSTED |
//! | cancelled | CANCELLED |
//! | internal | INTERNAL |
//!
//! The metadata entry `stoker-error-kind` carries the exact kind. An expired ticket is a FAILED_PRECONDITION rather
//! than UNAUTHENTICATED, because stock clients respond to the latter with a new login.
//!
//! Messages are cut to 2,000 characters, so that they fit into a header, and lose what looks like a credential. Before
//! a message leaves a server, the server also removes the location of its lake. The text of an internal
//! error stays in the server's log: the client gets only the id of the request, under which the log has it.

use stoker_types::ErrorKind;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::Error;

const KIND_HEADER: &str = "stoker-error-kind";

/// The maximum length of a message in characters. Messages travel in a header, and the default limit for all headers
/// together is 16 KiB.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// Parts of the names of credentials, in lower case.
const CREDENTIALS: [&str; 7] = ["secret", "token", "password", "signature", "access_key", "accountkey", "credential"];

fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::InvalidRequest => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::AlreadyExists => Code::AlreadyExists,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::PermissionDenied => Code::PermissionDenied,
        ErrorKind::Expired | ErrorKind::StateMismatch => Code::FailedPrecondition,
        ErrorKind::DataCorrupt => Code::DataLoss,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::ResourceExhausted => Code::ResourceExhausted,
        ErrorKind::Cancelled => Code::Cancelled,
        ErrorKind::Internal => Code::Internal,
    }
}

/// Makes the status of an error, whose message must be one that a client may see.
pub fn to_status(kind: ErrorKind, message: &str) -> Status {
    let mut status = Status::new(code(kind), redact(message));
    status.metadata_mut().insert(KIND_HEADER, MetadataValue::from_static(kind.as_str()));
    status
}

/// Returns whether a status was made by [`to_status`]: by a server, and not by a connection or a proxy.
pub fn is_of_server(status: &Status) -> bool {
    status.metadata().contains_key(KIND_HEADER)
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        let named = status.metadata().get(KIND_HEADER).and_then(|value| value.to_str().ok()).and_then(ErrorKind::parse);
        let kind = named.unwrap_or(match status.code() {
            Code::InvalidArgument | Code::OutOfRange | Code::Unimplemented => ErrorKind::InvalidRequest,
            Code::NotFound => ErrorKind::NotFound,
            Code::AlreadyExists => ErrorKind::AlreadyExists,
            Code::Unauthenticated => ErrorKind::Unauthenticated,
            Code::PermissionDenied => ErrorKind::PermissionDenied,
            Code::FailedPrecondition => ErrorKind::StateMismatch,
            Code::DataLoss => ErrorKind::DataCorrupt,
            Code::ResourceExhausted => ErrorKind::ResourceExhausted,
            // Without our metadata entry these codes come from the transport: a broken connection surfaces as any of
            // them.
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::Cancelled => ErrorKind::Unavailable,
            Code::Ok => ErrorKind::Internal,
        });
        Error::Remote { kind, message: status.message().to_string() }
    }
}

/// Removes the user and query parts of URLs, and values whose names look like those of credentials.
pub fn redact(message: &str) -> String {
    let words: Vec<String> =
        message.chars().take(MESSAGE_CHARS_MAX).collect::<String>().split(' ').map(redact_word).collect();
    words.join(" ")
}

fn redact_word(word: &str) -> String {
    let lower = word.to_lowercase();
    let named = CREDENTIALS.iter().any(|name| lower.contains(name));
    match (word.find("://"), word.find(['=', ':'])) {
        (Some(scheme), _) => {
            let rest = &word[scheme + 3..];
            let rest = rest.split('?').next().unwrap_or_default();
            let authority = rest.split('/').next().unwrap_or_default().len();
            let begin = rest[..authority].rfind('@').map_or(0, |at| at + 1);
            format!("{}{}", &word[..scheme + 3], &rest[begin..])
        }
        (None, Some(separator)) if named => format!("{}…", &word[..=separator]),
        _ => word.to_string(),
    }
}
