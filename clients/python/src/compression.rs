//! Parses the codec of a request.

use pyo3::prelude::*;
use stoker_types::{Compression, ErrorKind};

use crate::exceptions::error;

/// Parses the name of a codec; `None` means no compression.
pub(crate) fn to_compression(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Compression>> {
    let Some(name) = name else { return Ok(None) };
    match Compression::parse(name) {
        None => {
            let message = format!("compression is {name:?}; it must be \"lz4\" or \"zstd\"");
            Err(error(py, ErrorKind::InvalidRequest, &message))
        }
        found => Ok(found),
    }
}
