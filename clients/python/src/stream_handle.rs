//! A planned stream, for Python.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_stream::Windows;
use stoker_types::{
    BadRows, BadShare, BatchLogEntry, ErrorKind, ReadOptions, ResumePoint, Snapshot, StreamSpec, StreamState,
};

use crate::arrow_export::ArrowSchema;
use crate::compression::to_compression;
use crate::connection::Connection;
use crate::decode_request::DecodeRequest;
use crate::exceptions::{Raise, error};
use crate::fork::PerProcess;
use crate::runtime::wait;
use crate::sample_stream::SampleStream;
use crate::slice_request::SliceRequest;

/// The content of a state: epoch, position, step, and the log as triples of step, position and global batch size.
type Checked = (u64, u64, u64, Vec<(u64, u64, u64)>);

/// A stream whose rows and order are fixed. It can be opened for any slice, any number of times.
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

    /// Returns the engine's handle; a forked child loads a handle of its own from the specification.
    fn live(&self, py: Python<'_>) -> PyResult<Arc<stoker_flight::StreamHandle>> {
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

    /// The pinned snapshots as pairs of table and version.
    #[getter]
    fn snapshots(&self) -> Vec<(String, u64)> {
        pairs(self.spec.snapshots())
    }

    /// For each query, the tables that supply its rows, as pairs of table and version, in the order of row addresses.
    #[getter]
    fn row_tables(&self) -> Vec<Vec<(String, u64)>> {
        self.spec.sources.iter().map(|source| pairs(source.tables.iter())).collect()
    }

    /// Returns, for each position of an epoch, the index of the mixture's query that its row comes from.
    fn sources(&self, epoch: u64, positions: Vec<u64>) -> Vec<usize> {
        let windows = Windows::new(&self.spec, epoch);
        positions.into_iter().map(|position| windows.of(position).row(0).source).collect()
    }

    /// The weights of a mixture as the specification stores them: pairs of a first draw and the shares, one for each
    /// query.
    #[getter]
    fn weights(&self) -> Vec<(u64, Vec<f64>)> {
        let segments = self.spec.mixture.iter().flat_map(|mixture| &mixture.segments);
        segments.map(|segment| (segment.start, segment.weights())).collect()
    }

    /// The columns of a batch.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<ArrowSchema> {
        Ok(ArrowSchema(self.live(py)?.schema()))
    }

    /// Returns the columns of a batch after its images are decoded.
    fn decoded_schema(&self, py: Python<'_>, decode: DecodeRequest) -> PyResult<ArrowSchema> {
        let encoded = self.live(py)?.schema();
        Ok(ArrowSchema(decode.to_options(py)?.schema(&encoded).raise(py)?))
    }

    /// Returns the state as JSON; `log` has triples of step, position and global batch size.
    fn state(
        &self,
        py: Python<'_>,
        epoch: u64,
        position: u64,
        step: u64,
        log: Vec<(u64, u64, u64)>,
    ) -> PyResult<String> {
        let entry = |(step, position, global_batch)| BatchLogEntry { step, position, global_batch };
        let log: Vec<_> = log.into_iter().map(entry).collect();
        Ok(self.live(py)?.state(ResumePoint { epoch, position, step }, &log).to_json())
    }

    /// Returns the state at the start, with the whole specification embedded. It loads even where the lake cannot be
    /// written.
    fn pinned_state(&self) -> String {
        StreamState::new(&self.spec, ResumePoint::default(), &[], true).to_json()
    }

    /// Checks that a state belongs to this stream, and returns the state's content. If the state belongs to the same
    /// mixture after a change of weights, or to the same query written differently, it also returns the state's stream,
    /// which the caller uses from then on.
    fn check(&self, py: Python<'_>, state: &str) -> PyResult<(Checked, Option<StreamHandle>)> {
        let state = StreamState::from_json(state).raise(py)?;
        let connection = self.connection.get().live(py)?;
        let resumed = wait(py, self.live(py)?.resumed(&connection, &state))?.raise(py)?;
        let handle = resumed.map(|resumed| StreamHandle::new(self.connection.clone_ref(py), resumed));
        let log = state.log.iter().map(|entry| (entry.step, entry.position, entry.global_batch)).collect();
        Ok(((state.epoch, state.position, state.step, log), handle))
    }

    /// Returns the same mixture with other weights from a position of an epoch on.
    fn reweigh(&self, py: Python<'_>, epoch: u64, position: u64, weights: Vec<f64>) -> PyResult<StreamHandle> {
        let connection = self.connection.get().live(py)?;
        let handle = wait(py, self.live(py)?.reweigh(&connection, epoch, position, &weights))?.raise(py)?;
        Ok(StreamHandle::new(self.connection.clone_ref(py), handle))
    }

    /// Returns those of `columns` that are null in at least one row of the stream.
    fn nulls(&self, py: Python<'_>, columns: Vec<String>) -> PyResult<Vec<String>> {
        let handle = self.live(py)?;
        wait(py, handle.nulls(columns))?.raise(py)
    }

    /// Returns the number of global batches from the slice's origin to the end of the epoch, and the rows of a full
    /// global batch. Raises for a slice that cannot be opened.
    fn num_steps(&self, py: Python<'_>, slice: SliceRequest) -> PyResult<(u64, u64)> {
        let slice = slice.to_slice(py)?;
        self.live(py)?.check_slice(&slice).raise(py)?;
        Ok((slice.num_steps(self.spec.num_rows), slice.global_batch()))
    }

    /// Opens a slice; reading begins at once. With `decode`, images are decoded before the consumer asks for their
    /// batch.
    #[pyo3(signature = (slice, read, decode=None))]
    fn open(
        &self,
        py: Python<'_>,
        slice: SliceRequest,
        read: ReadRequest,
        decode: Option<DecodeRequest>,
    ) -> PyResult<SampleStream> {
        let (slice, options) = (slice.to_slice(py)?, read.to_options(py)?);
        let handle = self.live(py)?;
        let stream = match decode {
            None => wait(py, handle.open(&slice, &options))?,
            Some(decode) => {
                let decode = decode.to_options(py)?;
                wait(py, handle.open_decoded(&slice, &options, &decode))?
            }
        };
        Ok(SampleStream::new(stream.raise(py)?, handle.receipt(&slice)))
    }
}

/// The keys of the `ReadRequest` mapping in `_native.pyi`; `None` means the engine's default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ReadRequest {
    memory_budget_bytes: Option<u64>,
    bad_rows: String,
    max_bad_share: Option<f64>,
    verify: bool,
    retry_budget_secs: Option<u64>,
    compression: Option<String>,
    /// Whether the stream is a prefetch, which uses only a part of its memory budget until it begins.
    ahead: bool,
}

impl ReadRequest {
    pub fn to_options(&self, py: Python<'_>) -> PyResult<ReadOptions> {
        let defaults = ReadOptions::default();
        let Some(bad_rows) = BadRows::parse(&self.bad_rows) else {
            let message = format!("bad_rows is {:?}; it must be \"error\" or \"substitute\"", self.bad_rows);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        Ok(ReadOptions {
            bad_rows,
            max_bad_share: self.max_bad_share.map_or(Ok(defaults.max_bad_share), BadShare::try_new).raise(py)?,
            verify: self.verify,
            retry_budget: self.retry_budget_secs.map(Duration::from_secs),
            memory_budget_bytes: self.memory_budget_bytes.unwrap_or(defaults.memory_budget_bytes),
            compression: to_compression(py, self.compression.as_deref())?,
            ahead: self.ahead,
            ..defaults
        })
    }
}

fn pairs<'a>(snapshots: impl Iterator<Item = &'a Snapshot>) -> Vec<(String, u64)> {
    snapshots.map(|snapshot| (snapshot.table.to_string(), snapshot.version)).collect()
}
