//! Writes Arrow data from Python as one new table version.

use arrow_array::RecordBatchReader;
use pyo3::prelude::*;
use stoker_session::Connection;

use crate::arrow_import::reader;
use crate::engine::{Engine, OpenWrite, WriteRequest};
use crate::exceptions::Raise;
use crate::exit::detached;
use crate::runtime::wait;

/// Writes all batches and commits them. Nothing is visible before the commit; an error leaves the table as it was.
pub(crate) fn write(
    engine: &dyn Engine,
    connection: &Connection,
    data: &Bound<'_, PyAny>,
    request: &WriteRequest,
) -> PyResult<u64> {
    let py = data.py();
    let planned = wait(py, engine.plan_write(connection, request))?.raise(py)?;
    let mut batches = reader(data)?;
    let mut open = wait(py, planned.open(batches.schema()))?.raise(py)?;
    if let Err(failed) = write_all(py, open.as_mut(), &mut batches) {
        wait(py, open.abort())?;
        return Err(failed);
    }
    wait(py, open.finish())?.raise(py)
}

fn write_all(py: Python<'_>, open: &mut dyn OpenWrite, batches: &mut (impl RecordBatchReader + Send)) -> PyResult<()> {
    // The reader may call back into Python, for which it takes the interpreter lock itself.
    while let Some(batch) = detached(py, || batches.next()) {
        let batch = batch.raise(py)?;
        wait(py, open.write(batch))?.raise(py)?;
    }
    Ok(())
}
