//! A session of this process, or the plain data of one.

use std::sync::Arc;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_session::session::{SavedSession, SessionOptions, Status};
use stoker_types::{ErrorKind, Receipt, StreamSpec};

use crate::connection::Connection;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fork::PerProcess;
use crate::runtime::{runtime, started, wait};

/// A session that loads its stream on the first use that reads, where it is a pickled copy or that of a forked child.
/// Until then it is plain data.
pub(crate) struct KeptSession {
    connection: Py<Connection>,
    kept: Mutex<Kept>,
}

/// A session that reads, or its plain data. The lock is only held for moments, by threads that hold the interpreter lock
/// and that therefore do not fork meanwhile.
enum Kept {
    Live(PerProcess<Arc<stoker_session::Session>>),
    Saved(Arc<SavedSession>),
}

/// A session of this process.
pub(crate) enum View {
    Live(Arc<stoker_session::Session>),
    Saved(Arc<SavedSession>),
}

impl View {
    pub(crate) fn status(&self) -> Status {
        match self {
            View::Live(session) => session.status(),
            View::Saved(saved) => saved.status(),
        }
    }

    pub(crate) fn options(&self) -> SessionOptions {
        match self {
            View::Live(session) => session.options(),
            View::Saved(saved) => saved.options().clone(),
        }
    }

    pub(crate) fn of_spec<T>(&self, of: impl FnOnce(&StreamSpec) -> T) -> T {
        match self {
            View::Live(session) => of(&session.spec()),
            View::Saved(saved) => of(saved.spec()),
        }
    }

    pub(crate) fn receipt(&self) -> Receipt {
        match self {
            View::Live(session) => session.receipt(),
            View::Saved(saved) => saved.receipt(),
        }
    }
}

impl KeptSession {
    /// Keeps a session of this process.
    pub(crate) fn new(connection: Py<Connection>, session: stoker_session::Session) -> Self {
        Self { connection, kept: Mutex::new(Kept::Live(PerProcess::new(Arc::new(session)))) }
    }

    /// Keeps the plain data of a session.
    pub(crate) fn saved(connection: Py<Connection>, saved: SavedSession) -> Self {
        Self { connection, kept: Mutex::new(Kept::Saved(Arc::new(saved))) }
    }

    /// Returns the session, or its plain data if it was not used in this process yet.
    pub(crate) fn view(&self, py: Python<'_>) -> PyResult<View> {
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
        view.ok_or_else(|| {
            error(py, ErrorKind::Internal, &"the process forked while another thread changed the stream")
        })
    }

    /// Returns the session, after its stream is loaded.
    pub(crate) fn live(&self, py: Python<'_>) -> PyResult<Arc<stoker_session::Session>> {
        loop {
            let saved = match self.view(py)? {
                View::Live(session) => return Ok(session),
                View::Saved(saved) => saved,
            };
            let connection = self.connection.get().live(py)?;
            let restored =
                wait(py, stoker_session::Session::restore(connection, SavedSession::clone(&saved)))?.raise(py)?;
            let mut kept = self.kept.lock();
            // Meanwhile, another thread may have loaded the stream, or closed or left the pass: that makes other data.
            if let Kept::Saved(now) = &*kept
                && Arc::ptr_eq(now, &saved)
            {
                let session = Arc::new(restored);
                *kept = Kept::Live(PerProcess::new(session.clone()));
                return Ok(session);
            }
        }
    }

    /// Runs a method that may drop streams, without the interpreter lock.
    pub(crate) fn run<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&stoker_session::Session) -> T + Send,
    ) -> PyResult<T> {
        let (session, runtime) = (self.live(py)?, runtime(py)?);
        Ok(detached(py, || {
            let _context = runtime.enter();
            work(&session)
        }))
    }

    /// Changes the plain data of a session that was not used in this process yet. Returns whether it was one. A thread
    /// that loads the stream at this time has a copy of the data, and begins again with the changed one.
    pub(crate) fn change_saved(&self, py: Python<'_>, change: impl FnOnce(&mut SavedSession)) -> PyResult<bool> {
        self.view(py)?;
        let mut kept = self.kept.lock();
        let Kept::Saved(saved) = &mut *kept else { return Ok(false) };
        change(Arc::make_mut(saved));
        Ok(true)
    }
}

impl Drop for KeptSession {
    fn drop(&mut self) {
        if let Kept::Live(live) = self.kept.get_mut() {
            let session = live.take();
            let _context = started().map(|runtime| runtime.enter());
            drop(session);
        }
    }
}
