//! What a server did since it started.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use stoker_stream::{PartStream, StreamStats};

/// The answer of the action `status`. Sums are over the streams that ended.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ServerStatus {
    pub streams_running: u64,
    pub streams_ended: u64,
    pub batches: u64,
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// Bytes of the messages in which they were sent: fewer where they were compressed.
    pub bytes_sent: u64,
    /// Range reads of dense columns, and the bytes that they brought.
    pub requests: u64,
    pub bytes_read: u64,
    /// Bytes of chunks that came from the cache, and that were not there; chunks that were damaged there.
    pub cache_hit_bytes: u64,
    pub cache_miss_bytes: u64,
    pub cache_damaged: u64,
    /// Seconds that streams waited for storage, and for decoding.
    pub storage_secs: f64,
    pub decode_secs: f64,
    /// Seconds in which streams sent their batches, or waited for clients to take them.
    pub consumer_secs: f64,
    /// Bytes of batches that all streams may hold, and that they hold now.
    pub memory_budget_bytes: u64,
    pub memory_held_bytes: u64,
    /// Requests to object stores that all streams may have under way now.
    pub request_limit: u64,
}

/// Counts the streams of a server.
#[derive(Default)]
pub(crate) struct Totals {
    status: Mutex<ServerStatus>,
}

impl Totals {
    /// The counts now.
    pub fn status(&self) -> ServerStatus {
        self.status.lock().clone()
    }

    fn end(&self, stats: &StreamStats, bytes_sent: u64) {
        let mut status = self.status.lock();
        status.streams_running -= 1;
        status.streams_ended += 1;
        status.batches += stats.batches;
        status.rows += stats.rows;
        status.bytes += stats.bytes;
        status.bytes_sent += bytes_sent;
        status.requests += stats.requests;
        status.bytes_read += stats.bytes_read;
        status.cache_hit_bytes += stats.cache_hit_bytes;
        status.cache_miss_bytes += stats.cache_miss_bytes;
        status.cache_damaged += stats.cache_damaged;
        status.storage_secs += stats.stalls.storage.as_secs_f64();
        status.decode_secs += stats.stalls.decode.as_secs_f64();
        status.consumer_secs += stats.stalls.consumer.as_secs_f64();
    }
}

/// A stream that is counted, however it ends.
pub(crate) struct CountedStream {
    pub parts: PartStream,
    /// Bytes of the messages that were handed to the connection.
    pub bytes_sent: u64,
    totals: Arc<Totals>,
}

impl CountedStream {
    pub fn new(parts: PartStream, totals: Arc<Totals>) -> Self {
        totals.status.lock().streams_running += 1;
        Self { parts, bytes_sent: 0, totals }
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        let stats = self.parts.stats();
        let stalls = stats.stalls;
        tracing::debug!(
            batches = stats.batches,
            rows = stats.rows,
            bytes_read = stats.bytes_read,
            bytes_sent = self.bytes_sent,
            cache_hit_bytes = stats.cache_hit_bytes,
            storage_secs = stalls.storage.as_secs_f64(),
            decode_secs = stalls.decode.as_secs_f64(),
            consumer_secs = stalls.consumer.as_secs_f64(),
            "a stream ended"
        );
        self.totals.end(&stats, self.bytes_sent);
    }
}
