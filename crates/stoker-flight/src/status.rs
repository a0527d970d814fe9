//! Kinds of errors as gRPC status codes, and back.
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
//! The metadata entry `stoker-error-kind` carries the exact kind.

use stoker_types::ErrorKind;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::Error;

const KIND_HEADER: &str = "stoker-error-kind";

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

impl From<Error> for Status {
    fn from(error: Error) -> Status {
        let kind = error.kind();
        if kind == ErrorKind::Internal {
            tracing::error!(%error, "a request failed for a reason that is a bug");
        }
        let mut status = Status::new(code(kind), error.to_string());
        status.metadata_mut().insert(KIND_HEADER, MetadataValue::from_static(kind.as_str()));
        status
    }
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
            // A connection that broke in the middle of an answer surfaces under any of these.
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
