//! The native module of the Python package `stoker-engine`: all of `stoker-python`, and the engine.

mod column;
mod engine;
mod ingest;

use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The extension module `stoker_engine._native`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    stoker_python::register(module, Some(&engine::LocalEngine))
}
