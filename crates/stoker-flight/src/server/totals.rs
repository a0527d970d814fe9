//! The totals of a server's streams since it started.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;
use stoker_stream::{PartStream, StreamStats};

use crate::server::access_log::AccessEntry;
use crate::server::metrics::Metrics;

/// The minimum interval between two updates of the totals by a running stream.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// The response to the action `status`. The sums are over all streams; a running stream updates them about once a
/// second while it sends.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct ServerStatus {
    pub streams_running: u64,
    pub streams_ended: u64,
    pub batches: u64,
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// Bytes of the messages in which the columns were sent; fewer where messages were compressed.
    pub bytes_sent: u64,
    /// Range reads of dense columns: all reads, retries after faults, and hedged requests (second ones for slow reads);
    /// and the bytes that they returned.
    pub requests: u64,
    pub retries: u64,
    pub hedges: u64,
    pub bytes_read: u64,
    /// Bytes of chunks that came from the chunk cache, bytes of chunks that were not in it, and the number of its
    /// chunks that were damaged.
    pub cache_hit_bytes: u64,
    pub cache_miss_bytes: u64,
    pub cache_damaged: u64,
    /// The time that streams waited for storage and for decoding, in seconds.
    pub storage_secs: f64,
    pub decode_secs: f64,
    /// The time in which streams sent their batches or waited for clients to read them, in seconds.
    pub consumer_secs: f64,
    /// The memory for batches that all streams may hold, and that they hold now, in bytes.
    pub memory_budget_bytes: u64,
    pub memory_held_bytes: u64,
    /// The current limit of concurrent requests to object stores, for all streams together.
    pub request_limit: u64,
}

/// The totals of a server's streams.
#[derive(Default)]
pub(crate) struct Totals {
    status: Mutex<ServerStatus>,
}

impl Totals {
    /// Returns the current totals.
    pub fn status(&self) -> ServerStatus {
        self.status.lock().clone()
    }

    /// Adds what a stream did since its last update.
    fn add(&self, now: &StreamStats, before: &StreamStats, bytes_sent: u64) {
        let mut status = self.status.lock();
        let since = |part: fn(&StreamStats) -> u64| part(now).saturating_sub(part(before));
        let secs = |part: fn(&StreamStats) -> Duration| part(now).saturating_sub(part(before)).as_secs_f64();
        status.batches += since(|stats| stats.batches);
        status.rows += since(|stats| stats.rows);
        status.bytes += since(|stats| stats.bytes);
        status.bytes_sent += bytes_sent;
        status.requests += since(|stats| stats.requests);
        status.retries += since(|stats| stats.retries);
        status.hedges += since(|stats| stats.hedges);
        status.bytes_read += since(|stats| stats.bytes_read);
        status.cache_hit_bytes += since(|stats| stats.cache_hit_bytes);
        status.cache_miss_bytes += since(|stats| stats.cache_miss_bytes);
        status.cache_damaged += since(|stats| stats.cache_damaged);
        status.storage_secs += secs(|stats| stats.stalls.storage);
        status.decode_secs += secs(|stats| stats.stalls.decode);
        status.consumer_secs += secs(|stats| stats.stalls.consumer);
    }
}

/// A stream that updates the totals while it runs and when it is dropped, however it ends.
pub(crate) struct CountedStream {
    pub parts: PartStream,
    totals: Arc<Totals>,
    metrics: Arc<Metrics>,
    log: AccessEntry,
    counted: StreamStats,
    counted_bytes: u64,
    counted_at: Instant,
}

impl CountedStream {
    /// Creates the counter of a stream. The access log gets a line when it is dropped.
    pub fn new(parts: PartStream, totals: Arc<Totals>, metrics: Arc<Metrics>, log: AccessEntry) -> Self {
        totals.status.lock().streams_running += 1;
        let counted = StreamStats::default();
        Self { parts, totals, metrics, log, counted, counted_bytes: 0, counted_at: Instant::now() }
    }

    /// Counts messages that were handed to the connection.
    pub fn sent(&mut self, bytes: u64) {
        if self.log.bytes == 0 {
            self.metrics.first_rows(self.log.elapsed());
        }
        self.log.bytes += bytes;
        if self.counted_at.elapsed() >= COUNTED_EVERY {
            self.count();
        }
    }

    /// Marks the stream as completely sent.
    pub fn complete(&mut self) {
        self.log.is_complete = true;
    }

    fn count(&mut self) {
        let stats = self.parts.stats();
        self.totals.add(&stats, &self.counted, self.log.bytes - self.counted_bytes);
        self.log.rows = stats.rows;
        (self.counted, self.counted_bytes, self.counted_at) = (stats, self.log.bytes, Instant::now());
    }
}

impl Drop for CountedStream {
    fn drop(&mut self) {
        self.count();
        let mut status = self.totals.status.lock();
        status.streams_running -= 1;
        status.streams_ended += 1;
    }
}
