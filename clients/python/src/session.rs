//! A training loop over a stream, for Python.

use pyo3::prelude::*;
use stoker_session::session::{Left, PassId, SavedSession, Turn};
use stoker_types::StreamState;

use crate::arrow_export::ArrowSchema;
use crate::batch::Batch;
use crate::connection::Connection;
use crate::exceptions::Raise;
use crate::kept_session::{KeptSession, View};
use crate::runtime::wait;
use crate::session_request::SessionRequest;
use crate::stream_handle::{StreamHandle, pairs};
use crate::values::{from_python, to_python};

/// The batches of one rank, epoch after epoch, with a progress that can be saved.
///
/// A pickled copy, and the copy of a forked child, load their stream on their first use that reads.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Session(KeptSession);

#[pymethods]
impl Session {
    /// Begins at the start of an epoch. Raises for a slice that cannot be opened, and for columns that cannot be decoded.
    #[new]
    fn new(
        py: Python<'_>,
        connection: Py<Connection>,
        handle: &StreamHandle,
        options: SessionRequest,
        epoch: u64,
    ) -> PyResult<Self> {
        let (live, options) = (connection.get().live(py)?, options.to_options(py)?);
        let handle = stoker_session::StreamHandle::clone(&*handle.live(py)?);
        let session = stoker_session::Session::new(live, handle, options, epoch).raise(py)?;
        Ok(Self(KeptSession::new(connection, session)))
    }

    /// Makes a session from the return value of `save`.
    #[staticmethod]
    fn restored(connection: Py<Connection>, saved: &Bound<'_, PyAny>) -> PyResult<Self> {
        let saved: SavedSession = from_python(saved)?;
        Ok(Self(KeptSession::saved(connection, saved)))
    }

    /// Returns the session as plain data, without the pass that runs.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let saved = match self.0.view(py)? {
            View::Live(session) => session.save(),
            View::Saved(saved) => SavedSession::clone(&saved).without_pass(),
        };
        to_python(py, &saved)
    }

    /// The stream id: 64 hexadecimal digits.
    #[getter]
    fn stream_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.view(py)?.of_spec(|spec| spec.stream_id().to_string()))
    }

    /// The number of rows in the row set.
    #[getter]
    fn num_rows(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.of_spec(|spec| spec.num_rows))
    }

    /// The pinned snapshots as pairs of table and version.
    #[getter]
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        Ok(self.0.view(py)?.of_spec(|spec| pairs(spec.snapshots())))
    }

    /// The columns of a batch, after its images are decoded.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<ArrowSchema> {
        Ok(ArrowSchema(self.0.live(py)?.schema().raise(py)?))
    }

    /// The current share of each query of a mixture.
    #[getter]
    fn weights(&self, py: Python<'_>) -> PyResult<Option<Vec<f64>>> {
        Ok(match self.0.view(py)? {
            View::Live(session) => session.weights(),
            View::Saved(saved) => saved.weights(),
        })
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.0.view(py)?.status().topology.rank)
    }

    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.0.view(py)?.status().topology.world_size)
    }

    /// The maximum number of rows of this rank's batches.
    #[getter]
    fn batch_size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.options().rank_batch())
    }

    /// Whether all batches of all ranks have the same number of rows.
    #[getter]
    fn has_equal_batches(&self, py: Python<'_>) -> PyResult<bool> {
        let view = self.0.view(py)?;
        Ok(view.options().has_equal_batches() && !view.of_spec(|spec| spec.has_buckets()))
    }

    /// The policy for the last batch of an epoch.
    #[getter]
    fn last_batch(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.0.view(py)?.options().batching.last.as_str())
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.status().epoch)
    }

    /// The next position of the epoch.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.status().position)
    }

    /// The number of the next step, counted from the start of the training.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.status().step)
    }

    /// The number of global batches of this epoch, those before a resume included.
    #[getter]
    fn num_steps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.status().num_steps)
    }

    /// The number of global batches that are left in this epoch.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.0.view(py)?.status().remaining)
    }

    /// The number of the stream that is being read, and of the prefetched one.
    #[getter]
    fn open_streams(&self, py: Python<'_>) -> PyResult<(Option<u64>, Option<u64>)> {
        Ok(match self.0.view(py)? {
            View::Live(session) => session.open_streams(),
            View::Saved(_) => (None, None),
        })
    }

    /// Begins a pass, and ends the pass that runs. Returns the number of the pass.
    fn enter(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.run(py, |session| session.enter())?.raise(py).map(|pass| pass.0)
    }

    /// Returns the turn of a pass, or `None` if the pass was closed. Raises if a newer pass took over.
    fn turn_of(&self, py: Python<'_>, pass_number: u64) -> PyResult<Option<u64>> {
        Ok(self.0.live(py)?.turn(PassId(pass_number)).raise(py)?.map(|turn| turn.0))
    }

    /// The current turn, whatever pass runs. It changes when the progress is changed other than by batches.
    #[getter]
    fn turn(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(match self.0.view(py)? {
            View::Live(session) => session.current_turn().0,
            View::Saved(saved) => saved.status().turn.0,
        })
    }

    /// Returns the next batch of a turn, or `None` at the end of the epoch and when the turn has ended. The progress does
    /// not move.
    fn next(&self, py: Python<'_>, turn: u64) -> PyResult<Option<Batch>> {
        let session = self.0.live(py)?;
        let fetched = wait(py, session.fetch(Turn(turn)))?.raise(py)?;
        fetched.map(|fetched| Batch::try_new(py, fetched)).transpose()
    }

    /// Writes what must be in the lake before the last batch of an epoch is counted.
    fn finish(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let (session, key) = (self.0.live(py)?, batch.key);
        wait(py, session.finish(key))?.raise(py)
    }

    /// Counts a batch: the loop got it. This is an attribute and not a method, because Python handles no signal between
    /// an assignment and the `yield` after it. A batch of an earlier turn is not counted.
    #[setter]
    fn set_got(&self, py: Python<'_>, batch: &Bound<'_, Batch>) -> PyResult<()> {
        self.0.live(py)?.count(batch.get().key);
        Ok(())
    }

    /// Ends a pass. `at_end` says that it asked for a batch after the last one of the epoch.
    fn leave(&self, py: Python<'_>, pass_number: u64, at_end: bool) -> PyResult<()> {
        let pass = PassId(pass_number);
        if self.0.change_saved(py, |saved| saved.leave(pass))? {
            return Ok(());
        }
        let left = if at_end { Left::AtEnd } else { Left::Early };
        self.0.run(py, move |session| session.leave(pass, left))?.raise(py)
    }

    /// Ends the pass that runs, and closes all streams.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.0.change_saved(py, SavedSession::close)? { Ok(()) } else { self.0.run(py, |session| session.close()) }
    }

    /// Returns the state after the last batch that the loop got.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.0.live(py)?.state().raise(py)?;
        to_python(py, &state)
    }

    /// Continues after a state, given as JSON text.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let (state, session) = (StreamState::from_json(state).raise(py)?, self.0.live(py)?);
        wait(py, session.load_state(&state))?.raise(py)
    }

    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.0.run(py, |session| session.set_epoch(epoch))?.raise(py)
    }

    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        self.0.run(py, |session| session.restart())?.raise(py)
    }

    /// Skips global batches of this epoch. Returns how many were skipped.
    fn skip(&self, py: Python<'_>, steps: u64) -> PyResult<u64> {
        self.0.run(py, |session| session.skip(steps))?.raise(py)
    }

    fn set_weights(&self, py: Python<'_>, weights: Vec<f64>) -> PyResult<()> {
        let session = self.0.live(py)?;
        wait(py, session.set_weights(&weights))?.raise(py)
    }

    /// Narrows the session to one of several workers of its rank.
    fn narrow(&self, py: Python<'_>, worker: u32, num_workers: u32) -> PyResult<()> {
        self.0.live(py)?.narrow(worker, num_workers).raise(py)
    }

    /// Returns the counters of the running or the last pass. Times are dicts of `secs` and `nanos`, or nanoseconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = match self.0.view(py)? {
            View::Live(session) => session.stats(),
            View::Saved(saved) => saved.stats(),
        };
        to_python(py, &stats)
    }

    /// Returns the receipt of what the loops got.
    fn receipt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.0.view(py)?.receipt())
    }

    /// Returns the bad rows of the receipt: dicts of epoch, position, addresses by table, and reason.
    fn substituted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &stoker_session::session::substituted(self.0.view(py)?.receipt()))
    }
}
