//! The access log: one line for each stream and each query result, written when its response ends.

use std::time::Duration;

use stoker_clock::Clock;
use stoker_types::Moment;

use crate::request_id::RequestId;

/// A line of the access log, written when this is dropped, however the response ends.
pub(crate) struct AccessEntry {
    /// `stream` or `query`.
    kind: &'static str,
    /// For a stream its id, epoch, rank and first step; for a query the digest of its text, because the text may
    /// contain private values.
    what: String,
    who: String,
    request_id: Option<RequestId>,
    clock: Clock,
    begun: Moment,
    /// The rows, and the bytes of messages, that were handed to the connection.
    pub rows: u64,
    pub bytes: u64,
    /// True after the whole response was handed to the connection.
    pub is_complete: bool,
}

impl AccessEntry {
    /// Creates the entry of a response that begins now, with the id of the current task's request.
    pub fn new(kind: &'static str, what: String, who: String, clock: &Clock) -> Self {
        let (request_id, begun, clock) = (RequestId::current(), clock.now(), clock.clone());
        Self { kind, what, who, request_id, clock, begun, rows: 0, bytes: 0, is_complete: false }
    }

    /// Returns what is sent: a stream id with epoch, rank and first step, or the digest of a query.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the clock by which the response is measured.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the time since the response began.
    pub fn elapsed(&self) -> Duration {
        self.clock.since(self.begun)
    }
}

impl Drop for AccessEntry {
    fn drop(&mut self) {
        let request_id = self.request_id.as_ref().map(tracing::field::display);
        let (kind, what, who) = (self.kind, &self.what, &self.who);
        let (rows, bytes, is_complete) = (self.rows, self.bytes, self.is_complete);
        let secs = self.elapsed().as_secs_f64();
        tracing::info!(target: "stoker_server::access", kind, who, what, rows, bytes, secs, is_complete, request_id);
    }
}
