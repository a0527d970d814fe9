//! Maps error kinds to Python exceptions.

use std::fmt::Display;

use pyo3::prelude::*;
use pyo3::types::PyType;
use stoker_types::ErrorKind;

/// Returns the name of the exception class in `stoker._errors` for a kind.
fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest => "InvalidRequestError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::AlreadyExists => "AlreadyExistsError",
        ErrorKind::Unauthenticated => "UnauthenticatedError",
        ErrorKind::PermissionDenied => "PermissionDeniedError",
        ErrorKind::Expired => "ExpiredError",
        ErrorKind::StateMismatch => "StateMismatchError",
        ErrorKind::DataCorrupt => "DataCorruptError",
        ErrorKind::Unavailable => "UnavailableError",
        ErrorKind::ResourceExhausted => "ResourceExhaustedError",
        ErrorKind::Cancelled => "CancelledError",
        ErrorKind::Internal => "InternalError",
    }
}

/// Makes the exception for a kind, with a message.
pub(crate) fn error(py: Python<'_>, kind: ErrorKind, message: &dyn Display) -> PyErr {
    let class = py
        .import("stoker._errors")
        .and_then(|module| module.getattr(class_name(kind)))
        .and_then(|class| Ok(class.cast_into::<PyType>()?));
    match class {
        Ok(class) => PyErr::from_type(class, message.to_string()),
        Err(missing) => missing,
    }
}

/// Converts a `Result` with an error of the workspace's crates, which all have a kind.
pub(crate) trait Raise<T> {
    /// Returns the value, or the Python exception for the error.
    fn raise(self, py: Python<'_>) -> PyResult<T>;
}

macro_rules! raise {
    ($($error:ty),+) => {$(
        impl<T> Raise<T> for Result<T, $error> {
            fn raise(self, py: Python<'_>) -> PyResult<T> {
                self.map_err(|source| error(py, source.kind(), &source))
            }
        }
    )+};
}

raise!(stoker_types::Error, stoker_decode::Error, stoker_tokenize::Error, stoker_session::Error);

impl<T> Raise<T> for Result<T, arrow_schema::ArrowError> {
    fn raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|source| error(py, ErrorKind::InvalidRequest, &source))
    }
}
