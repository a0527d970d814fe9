//! The totals of a server's streams since it started.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_stream::PartStream;
use stoker_types::{Moment, StreamStats, calls::ServerStatus};

use crate::access_log::AccessEntry;
use crate::metrics::Metrics;

/// The minimum interval between two updates of the totals by a running stream.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// Counts the streams of a server.
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
    counted_at: Moment,
}

impl CountedStream {
    /// Creates the counter of a stream. The access log gets a line when it is dropped.
    pub fn new(parts: PartStream, totals: Arc<Totals>, metrics: Arc<Metrics>, log: AccessEntry) -> Self {
        totals.status.lock().streams_running += 1;
        let (counted, counted_at) = (StreamStats::default(), log.clock().now());
        Self { parts, totals, metrics, log, counted, counted_bytes: 0, counted_at }
    }

    /// Counts messages that were handed to the connection.
    pub fn sent(&mut self, bytes: u64) {
        if self.log.bytes == 0 {
            self.metrics.first_rows(self.log.elapsed());
        }
        self.log.bytes += bytes;
        if self.log.clock().since(self.counted_at) >= COUNTED_EVERY {
            self.count();
        }
    }

    /// Returns the slice that is sent, as the log names it.
    pub fn what(&self) -> &str {
        self.log.what()
    }

    /// Marks the stream as completely sent.
    pub fn complete(&mut self) {
        self.log.is_complete = true;
    }

    fn count(&mut self) {
        let stats = self.parts.stats();
        self.totals.add(&stats, &self.counted, self.log.bytes - self.counted_bytes);
        self.log.rows = stats.rows;
        (self.counted, self.counted_bytes, self.counted_at) = (stats, self.log.bytes, self.log.clock().now());
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
