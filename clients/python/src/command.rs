//! The `stoker` command, from Python.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

use crate::engine::engine;
use crate::exit::detached;

/// Runs the `stoker` command with these arguments, of which the first is the name of the program. Returns 0 for success
/// and 1 for a failure, which standard error explains.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, args: Vec<OsString>) -> PyResult<u8> {
    let engine = engine(py, "the command `stoker`")?;
    let status = detached(py, || engine.main(args));
    Ok(u8::from(status != ExitCode::SUCCESS))
}
