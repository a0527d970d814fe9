//! A planned stream, for Python.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_types::{ResumePoint, Snapshot, StreamSpec, StreamState};

use crate::arrow_export::ArrowSchema;
use crate::connection::Connection;
use crate::exceptions::Raise;
use crate::fork::PerProcess;
use crate::runtime::wait;

/// A stream whose rows and order are fixed. A `Session` reads it.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct StreamHandle {
    connection: Py<Connection>,
    spec: StreamSpec,
    live: Mutex<PerProcess<Arc<stoker_session::StreamHandle>>>,
}

impl StreamHandle {
    /// Wraps a stream that was planned or loaded.
    pub(crate) fn new(connection: Py<Connection>, handle: stoker_session::StreamHandle) -> Self {
        let spec = handle.spec().clone();
        Self { connection, spec, live: Mutex::new(PerProcess::new(Arc::new(handle))) }
    }

    /// Returns the engine's handle; a forked child loads a handle of its own from the specification.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<stoker_session::StreamHandle>> {
        let found = self.live.lock().get().cloned();
        if let Some(handle) = found {
            return Ok(handle);
        }
        let connection = self.connection.get().live(py)?;
        let state = StreamState::new(&self.spec, ResumePoint::default(), &[], true);
        let handle = Arc::new(wait(py, connection.load_stream(&state))?.raise(py)?);
        *self.live.lock() = PerProcess::new(handle.clone());
        Ok(handle)
    }
}

#[pymethods]
impl StreamHandle {
    /// The stream id: 64 hexadecimal digits.
    #[getter]
    fn stream_id(&self) -> String {
        self.spec.stream_id().to_string()
    }

    /// The number of rows in the row set.
    #[getter]
    fn num_rows(&self) -> u64 {
        self.spec.num_rows
    }

    /// Whether the positions of the stream are those of buckets.
    #[getter]
    fn has_buckets(&self) -> bool {
        self.spec.has_buckets()
    }

    /// The tables that supply rows, as pairs of table and version, in the order of row addresses.
    #[getter]
    fn tables(&self) -> Vec<(String, u64)> {
        pairs(self.spec.tables())
    }

    /// The columns of a batch.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<ArrowSchema> {
        Ok(ArrowSchema(self.live(py)?.schema()))
    }

    /// Returns the state at the start as JSON, with the whole specification embedded. It loads even where the lake cannot
    /// be written.
    fn pinned_state(&self) -> String {
        StreamState::new(&self.spec, ResumePoint::default(), &[], true).to_json()
    }

    /// Returns those of `columns` that are null in at least one row of the stream.
    fn nulls(&self, py: Python<'_>, columns: Vec<String>) -> PyResult<Vec<String>> {
        let handle = self.live(py)?;
        wait(py, handle.nulls(columns))?.raise(py)
    }
}

/// Returns snapshots as pairs of table and version.
pub(crate) fn pairs<'a>(snapshots: impl IntoIterator<Item = &'a Snapshot>) -> Vec<(String, u64)> {
    snapshots.into_iter().map(|snapshot| (snapshot.table.to_string(), snapshot.version)).collect()
}
