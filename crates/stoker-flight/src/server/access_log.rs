//! Who got what: one line for each stream and each query, when it ends.

use std::time::{Duration, Instant};

use crate::server::request_id::RequestId;

/// A line that is written when it is dropped, however the answer ends.
pub(crate) struct AccessEntry {
    /// `stream` or `query`.
    kind: &'static str,
    /// A stream id with epoch, rank and first step, or the digest of a query: never its text, which may hold what is private.
    what: String,
    who: String,
    request_id: Option<RequestId>,
    begun: Instant,
    /// Rows, and bytes of messages, that were handed to the connection.
    pub rows: u64,
    pub bytes: u64,
    /// Whether all of it was.
    pub is_complete: bool,
}

impl AccessEntry {
    /// The entry of an answer that begins now, to the request for which the current task works.
    pub fn new(kind: &'static str, what: String, who: String) -> Self {
        let request_id = RequestId::current();
        Self { kind, what, who, request_id, begun: Instant::now(), rows: 0, bytes: 0, is_complete: false }
    }

    /// The time since the answer began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let request_id = self.request_id.as_ref().map(tracing::field::display);
        let (kind, what, who) = (self.kind, &self.what, &self.who);
        let (rows, bytes, is_complete) = (self.rows, self.bytes, self.is_complete);
        let secs = self.elapsed().as_secs_f64();
        tracing::info!(target: "stoker_flight::access", kind, who, what, rows, bytes, secs, is_complete, request_id);
    }
}
