//! Sessions as plain data, for copies in other processes.

use serde::{Deserialize, Serialize};
use stoker_types::{Receipt, ResumePoint, StreamSpec, StreamState, StreamStats};

use crate::session::inner::{Inner, Kept};
use crate::session::{PassId, Session, SessionOptions, Status};
use crate::{Connection, Result};

/// A session as plain data: the specification of its stream, its options, its progress and its receipts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedSession {
    spec: StreamSpec,
    kept: Kept,
}

impl SavedSession {
    /// Returns the specification of the stream.
    pub fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// Returns where the session was.
    pub fn status(&self) -> Status {
        self.kept.status()
    }

    /// Returns the options.
    pub fn options(&self) -> &SessionOptions {
        &self.kept.options
    }

    /// Returns the share of each query of a mixture, or `None` for a stream of one query.
    pub fn weights(&self) -> Option<Vec<f64>> {
        self.kept.weights(&self.spec)
    }

    /// Returns the counters of the last pass.
    pub fn stats(&self) -> StreamStats {
        self.kept.stats
    }

    /// Returns the receipt of the batches that the consumer got.
    pub fn receipt(&self) -> Receipt {
        self.kept.receipts.document(self.spec.stream_id(), None)
    }

    /// Returns the session without the pass that runs: a restored copy begins a pass of its own at the progress.
    pub fn without_pass(mut self) -> Self {
        self.kept.pass = None;
        self.kept.closed.clear();
        self
    }

    /// Ends a pass, as [`Session::leave`] does. If the consumer got the last batch, the next pass begins the next epoch.
    pub fn leave(&mut self, pass: PassId) {
        self.kept.closed.remove(&pass);
        self.kept.pass.take_if(|running| *running == pass);
    }

    /// Ends the pass that runs, as [`Session::close`] does.
    pub fn close(&mut self) {
        self.kept.close_pass();
    }
}

impl Session {
    /// Returns the session as plain data, without the pass that runs ([`SavedSession::without_pass`]). The copy's receipts contain what the consumer got from this session.
    pub fn save(&self) -> SavedSession {
        self.with(|inner| inner.saved()).without_pass()
    }

    /// Returns the session as plain data, with the pass that runs, for the child of a `fork` in which only this memory
    /// exists: the session's threads, sockets and locks belong to the parent. A pass of the parent continues in the
    /// restored session with the first batch that the parent had not read. Returns `None` if a thread of the parent held
    /// the lock at the fork.
    pub fn save_inherited(&self) -> Option<SavedSession> {
        self.try_with(Inner::saved)
    }

    /// Makes a session from plain data. Costs one call that loads the stream.
    ///
    /// # Errors
    /// A stream that this lake does not know; data that changed (kind `StateMismatch`); storage errors; servers that
    /// cannot be reached.
    pub async fn restore(connection: Connection, saved: SavedSession) -> Result<Self> {
        let state = StreamState::new(&saved.spec, ResumePoint::default(), &[], true);
        let handle = connection.load_stream(&state).await?;
        Ok(Self::of(connection, Inner::new(handle, saved.kept)))
    }
}

impl Inner {
    fn saved(&self) -> SavedSession {
        let mut kept = self.kept.clone();
        if let Some(open) = &self.open {
            kept.receipts.add(open.delivery.receipt());
            kept.stats = open.stats;
        }
        SavedSession { spec: StreamSpec::clone(&self.spec), kept }
    }
}
