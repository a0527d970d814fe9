//! The native module of the Python package `stoker`, without the engine: for clients of servers.

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The extension module `stoker._client`.
#[pymodule]
fn _client(module: &Bound<'_, PyModule>) -> PyResult<()> {
    stoker_python::register(module, None)
}
