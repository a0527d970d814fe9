//! A training loop over a stream, for Python.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_flight::session::{Left, PassId, SavedSession, SessionOptions, Status, Turn};
use stoker_types::{ErrorKind, Receipt, StreamSpec, StreamState};

use crate::arrow_export::ArrowSchema;
use crate::batch::Batch;
use crate::connection::Connection;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fork::PerProcess;
use crate::runtime::{runtime, started, wait};
use crate::session_request::SessionRequest;
use crate::stream_handle::{StreamHandle, pairs};
use crate::values::{from_python, to_python};

/// The batches of one rank, epoch after epoch, with a progress that can be saved.
///
/// A pickled copy, and the copy of a forked child, load their stream on their first use that reads. Until then they are
/// plain data.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Session {
    connection: Py<Connection>,
    kept: Mutex<Kept>,
}

/// A session that reads, or its plain data. The lock is only held for moments, by threads that hold the interpreter lock
/// and that therefore do not fork meanwhile.
enum Kept {
    Live(PerProcess<Arc<stoker_flight::Session>>),
    Saved(Arc<SavedSession>),
}

/// A session of this process.
enum View {
    Live(Arc<stoker_flight::Session>),
    Saved(Arc<SavedSession>),
}

impl View {
    fn status(&self) -> Status {
        match self {
            View::Live(session) => session.status(),
            View::Saved(saved) => saved.status(),
        }
    }

    fn options(&self) -> SessionOptions {
        match self {
            View::Live(session) => session.options(),
            View::Saved(saved) => saved.options().clone(),
        }
    }

    fn of_spec<T>(&self, of: impl FnOnce(&StreamSpec) -> T) -> T {
        match self {
            View::Live(session) => of(&session.spec()),
            View::Saved(saved) => of(saved.spec()),
        }
    }

    fn receipt(&self) -> Receipt {
        match self {
            View::Live(session) => session.receipt(),
            View::Saved(saved) => saved.receipt(),
        }
    }
}

impl Session {
    /// Returns the session, or its plain data if it was not used in this process yet.
    fn view(&self, py: Python<'_>) -> PyResult<View> {
        let view = {
            let mut kept = self.kept.lock();
            if let Kept::Live(live) = &*kept
                && live.get().is_none()
                && let Some(saved) = live.inherited().and_then(|session| session.save_inherited())
            {
                *kept = Kept::Saved(Arc::new(saved));
            }
            match &*kept {
                Kept::Live(live) => live.get().cloned().map(View::Live),
                Kept::Saved(saved) => Some(View::Saved(saved.clone())),
            }
        };
        view.ok_or_else(|| error(py, ErrorKind::Internal, &"the process forked while another thread changed the stream"))
    }

    /// Returns the session, after its stream is loaded.
    fn live(&self, py: Python<'_>) -> PyResult<Arc<stoker_flight::Session>> {
        let saved = match self.view(py)? {
            View::Live(session) => return Ok(session),
            View::Saved(saved) => saved,
        };
        let connection = self.connection.get().live(py)?;
        let restored = wait(py, stoker_flight::Session::restore(connection, SavedSession::clone(&saved)))?.raise(py)?;
        let mut kept = self.kept.lock();
        // Another thread may have loaded the stream meanwhile.
        let other = match &*kept {
            Kept::Live(live) => live.get().cloned(),
            Kept::Saved(_) => None,
        };
        Ok(other.unwrap_or_else(|| {
            let session = Arc::new(restored);
            *kept = Kept::Live(PerProcess::new(session.clone()));
            session
        }))
    }

    /// Runs a method that may drop streams, without the interpreter lock.
    fn run<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&stoker_flight::Session) -> T + Send) -> PyResult<T> {
        let (session, runtime) = (self.live(py)?, runtime(py)?);
        Ok(detached(py, || {
            let _context = runtime.enter();
            work(&session)
        }))
    }

    /// Changes the plain data of a session that was not used in this process yet. Returns whether it was one.
    fn change_saved(&self, py: Python<'_>, change: impl FnOnce(&mut SavedSession)) -> PyResult<bool> {
        let View::Saved(saved) = self.view(py)? else { return Ok(false) };
        let mut changed = SavedSession::clone(&saved);
        change(&mut changed);
        *self.kept.lock() = Kept::Saved(Arc::new(changed));
        Ok(true)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Kept::Live(live) = self.kept.get_mut() {
            let session = live.take();
            let _context = started().map(|runtime| runtime.enter());
            drop(session);
        }
    }
}

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
        let handle = stoker_flight::StreamHandle::clone(&*handle.live(py)?);
        let session = stoker_flight::Session::new(live, handle, options, epoch).raise(py)?;
        Ok(Self { connection, kept: Mutex::new(Kept::Live(PerProcess::new(Arc::new(session)))) })
    }

    /// Makes a session from the return value of `save`.
    #[staticmethod]
    fn restored(connection: Py<Connection>, saved: &Bound<'_, PyAny>) -> PyResult<Self> {
        let saved: SavedSession = from_python(saved)?;
        Ok(Self { connection, kept: Mutex::new(Kept::Saved(Arc::new(saved))) })
    }

    /// Returns the session as plain data, without the pass that runs.
    fn save<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let saved = match self.view(py)? {
            View::Live(session) => session.save(),
            View::Saved(saved) => SavedSession::clone(&saved).without_pass(),
        };
        to_python(py, &saved)
    }

    /// The stream id: 64 hexadecimal digits.
    #[getter]
    fn stream_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.view(py)?.of_spec(|spec| spec.stream_id().to_string()))
    }

    /// The number of rows in the row set.
    #[getter]
    fn num_rows(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.of_spec(|spec| spec.num_rows))
    }

    /// The pinned snapshots as pairs of table and version.
    #[getter]
    fn snapshots(&self, py: Python<'_>) -> PyResult<Vec<(String, u64)>> {
        Ok(self.view(py)?.of_spec(|spec| pairs(spec.snapshots())))
    }

    /// The columns of a batch, after its images are decoded.
    #[getter]
    fn schema(&self, py: Python<'_>) -> PyResult<ArrowSchema> {
        Ok(ArrowSchema(self.live(py)?.schema().raise(py)?))
    }

    /// The current share of each query of a mixture.
    #[getter]
    fn weights(&self, py: Python<'_>) -> PyResult<Option<Vec<f64>>> {
        Ok(match self.view(py)? {
            View::Live(session) => session.weights(),
            View::Saved(saved) => saved.weights(),
        })
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.view(py)?.status().topology.rank)
    }

    #[getter]
    fn world_size(&self, py: Python<'_>) -> PyResult<u32> {
        Ok(self.view(py)?.status().topology.world_size)
    }

    /// The maximum number of rows of this rank's batches.
    #[getter]
    fn batch_size(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.options().rank_batch())
    }

    /// The policy for the last batch of an epoch.
    #[getter]
    fn last_batch(&self, py: Python<'_>) -> PyResult<&'static str> {
        Ok(self.view(py)?.options().batching.last.as_str())
    }

    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.status().epoch)
    }

    /// The next position of the epoch.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.status().position)
    }

    /// The number of the next step, counted from the start of the training.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.status().step)
    }

    /// The number of global batches of this epoch, those before a resume included.
    #[getter]
    fn num_steps(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.status().num_steps)
    }

    /// The number of global batches that are left in this epoch.
    #[getter]
    fn remaining(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.view(py)?.status().remaining)
    }

    /// The number of the stream that is being read, and of the prefetched one.
    #[getter]
    fn open_streams(&self, py: Python<'_>) -> PyResult<(Option<u64>, Option<u64>)> {
        Ok(match self.view(py)? {
            View::Live(session) => session.open_streams(),
            View::Saved(_) => (None, None),
        })
    }

    /// Begins a pass, and ends the pass that runs. Returns the number of the pass.
    fn enter(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |session| session.enter())?.raise(py).map(|pass| pass.0)
    }

    /// Returns the turn of a pass, or `None` if the pass was closed. Raises if a newer pass took over.
    fn turn_of(&self, py: Python<'_>, pass_number: u64) -> PyResult<Option<u64>> {
        Ok(self.live(py)?.turn(PassId(pass_number)).raise(py)?.map(|turn| turn.0))
    }

    /// The current turn, whatever pass runs. It changes when the progress is changed other than by batches.
    #[getter]
    fn turn(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(match self.view(py)? {
            View::Live(session) => session.current_turn().0,
            View::Saved(saved) => saved.status().turn.0,
        })
    }

    /// Returns the next batch of a turn, or `None` at the end of the epoch and when the turn has ended. The progress does
    /// not move.
    fn next(&self, py: Python<'_>, turn: u64) -> PyResult<Option<Batch>> {
        let session = self.live(py)?;
        let fetched = wait(py, session.fetch(Turn(turn)))?.raise(py)?;
        fetched.map(|fetched| Batch::try_new(py, fetched)).transpose()
    }

    /// Writes what must be in the lake before the last batch of an epoch is counted.
    fn finish(&self, py: Python<'_>, batch: &Batch) -> PyResult<()> {
        let (session, key) = (self.live(py)?, batch.key);
        wait(py, session.finish(key))?.raise(py)
    }

    /// Counts a batch: the loop got it. This is an attribute and not a method, because Python handles no signal between
    /// an assignment and the `yield` after it. A batch of an earlier turn is not counted.
    #[setter]
    fn set_got(&self, py: Python<'_>, batch: &Bound<'_, Batch>) -> PyResult<()> {
        self.live(py)?.count(batch.get().key);
        Ok(())
    }

    /// Ends a pass. `at_end` says that it asked for a batch after the last one of the epoch.
    fn leave(&self, py: Python<'_>, pass_number: u64, at_end: bool) -> PyResult<()> {
        let pass = PassId(pass_number);
        if self.change_saved(py, |saved| saved.leave(pass))? {
            return Ok(());
        }
        let left = if at_end { Left::AtEnd } else { Left::Early };
        self.run(py, move |session| session.leave(pass, left))?.raise(py)
    }

    /// Ends the pass that runs, and closes all streams.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.change_saved(py, SavedSession::close)? { Ok(()) } else { self.run(py, |session| session.close()) }
    }

    /// Returns the state after the last batch that the loop got.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = self.live(py)?.state().raise(py)?;
        to_python(py, &state)
    }

    /// Continues after a state, given as JSON text.
    fn load_state(&self, py: Python<'_>, state: &str) -> PyResult<()> {
        let (state, session) = (StreamState::from_json(state).raise(py)?, self.live(py)?);
        wait(py, session.load_state(&state))?.raise(py)
    }

    fn set_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.run(py, |session| session.set_epoch(epoch))?.raise(py)
    }

    fn restart(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |session| session.restart())?.raise(py)
    }

    /// Skips global batches of this epoch. Returns how many were skipped.
    fn skip(&self, py: Python<'_>, steps: u64) -> PyResult<u64> {
        self.run(py, |session| session.skip(steps))?.raise(py)
    }

    fn set_weights(&self, py: Python<'_>, weights: Vec<f64>) -> PyResult<()> {
        let session = self.live(py)?;
        wait(py, session.set_weights(&weights))?.raise(py)
    }

    /// Narrows the session to one of several workers of its rank.
    fn narrow(&self, py: Python<'_>, worker: u32, num_workers: u32) -> PyResult<()> {
        self.live(py)?.narrow(worker, num_workers).raise(py)
    }

    /// Returns the counters of the running or the last pass. Times are dicts of `secs` and `nanos`, or nanoseconds.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let stats = match self.view(py)? {
            View::Live(session) => session.stats(),
            View::Saved(saved) => saved.stats(),
        };
        to_python(py, &stats)
    }

    /// Returns the receipt of what the loops got.
    fn receipt<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &self.view(py)?.receipt())
    }

    /// Returns the bad rows of the receipt: dicts of epoch, position, addresses by table, and reason.
    fn substituted<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_python(py, &stoker_flight::session::substituted(self.view(py)?.receipt()))
    }
}
