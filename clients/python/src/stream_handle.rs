//! A planned stream, for Python.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_stream::ReadOptions;
use stoker_types::{BatchLogEntry, StreamSpec, StreamState};

use crate::arrow_export::ArrowSchema;
use crate::connection::Connection;
use crate::exceptions::Raise;
use crate::fork::PerProcess;
use crate::runtime::wait;
use crate::sample_stream::SampleStream;
use crate::slice_request::SliceRequest;

/// What a state says: epoch, position, and the log of (position, global batch).
type Checked = (u64, u64, Vec<(u64, u64)>);

/// A stream whose rows and order are fixed: it can be opened for any slice, any number of times.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct StreamHandle {
    connection: Py<Connection>,
    spec: StreamSpec,
    live: Mutex<PerProcess<Arc<stoker_flight::StreamHandle>>>,
}

impl StreamHandle {
    /// Wraps a stream that was planned or loaded.
    pub(crate) fn new(connection: Py<Connection>, handle: stoker_flight::StreamHandle) -> Self {
        let spec = handle.spec().clone();
        Self { connection, spec, live: Mutex::new(PerProcess::new(Arc::new(handle))) }
    }

    /// The engine's handle; a child process loads its own from the specification.
    fn live(&self, py: Python<'_>) -> PyResult<Arc<stoker_flight::StreamHandle>> {
        let found = self.live.lock().get().cloned();
        if let Some(handle) = found {
            return Ok(handle);
        }
        let connection = self.connection.get().live(py)?;
        let state = StreamState::new(&self.spec, 0, 0, &[], true);
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

    /// Rows in the row set.
    #[getter]
    fn num_rows(&self) -> u64 {
        self.spec.num_rows
    }

    /// The pinned snapshots as pairs of table and version.
    #[getter]
    fn snapshots(&self) -> Vec<(String, u64)> {
        self.spec.snapshots.iter().map(|snapshot| (snapshot.table.to_string(), snapshot.version)).collect()
    }

    /// The columns of a batch.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<ArrowSchema> {
        Ok(ArrowSchema(self.live(py)?.schema()))
    }

    /// The state at a position as JSON; `log` has pairs of position and global batch size.
    fn state(&self, py: Python<'_>, epoch: u64, position: u64, log: Vec<(u64, u64)>) -> PyResult<String> {
        let entry = |(position, global_batch)| BatchLogEntry { position, global_batch };
        let log: Vec<_> = log.into_iter().map(entry).collect();
        Ok(self.live(py)?.state(epoch, position, &log).to_json())
    }

    /// The state at the start with the whole specification in it, which loads even where the lake cannot be written.
    fn pinned_state(&self) -> String {
        StreamState::new(&self.spec, 0, 0, &[], true).to_json()
    }

    /// Checks that a state belongs to this stream; returns its epoch, position and log.
    fn check(&self, py: Python<'_>, state: &str) -> PyResult<Checked> {
        let state = StreamState::from_json(state).raise(py)?;
        state.check(&self.spec).raise(py)?;
        let log = state.log.iter().map(|entry| (entry.position, entry.global_batch)).collect();
        Ok((state.epoch, state.position, log))
    }

    /// Global batches from the slice's origin to the end of the epoch, and rows in a full one.
    fn num_steps(&self, py: Python<'_>, slice: SliceRequest) -> PyResult<(u64, u64)> {
        let slice = slice.to_slice(py)?;
        Ok((slice.num_steps(self.spec.num_rows), slice.global_batch()))
    }

    /// Opens a slice; reading begins at once.
    #[pyo3(signature = (slice, memory_budget_bytes=None))]
    fn open(&self, py: Python<'_>, slice: SliceRequest, memory_budget_bytes: Option<u64>) -> PyResult<SampleStream> {
        let slice = slice.to_slice(py)?;
        let defaults = ReadOptions::default();
        let memory_budget_bytes = memory_budget_bytes.unwrap_or(defaults.memory_budget_bytes);
        let options = ReadOptions { memory_budget_bytes, ..defaults };
        let handle = self.live(py)?;
        let stream = wait(py, handle.open(&slice, &options))?.raise(py)?;
        Ok(SampleStream::new(stream))
    }
}
