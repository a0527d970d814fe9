//! Plain data between Rust and Python: structs are dicts, sequences are lists.

use pyo3::prelude::*;
use pythonize::{depythonize, pythonize};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stoker_types::ErrorKind;

use crate::exceptions::error;

/// The value as Python's dicts, lists, numbers and texts.
///
/// # Errors
/// `Internal` for a value that Python has no type for.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    pythonize(py, value).map_err(|source| error(py, ErrorKind::Internal, &source))
}

/// The value of dicts, lists, numbers and texts.
///
/// # Errors
/// `InvalidRequest` for what does not have the fields of the value.
pub(crate) fn from_python<T: DeserializeOwned>(value: &Bound<'_, PyAny>) -> PyResult<T> {
    depythonize(value).map_err(|source| error(value.py(), ErrorKind::InvalidRequest, &source))
}
