//! Counters of a remote stream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stoker_types::{StreamStats, to_nanos};

/// The counters behind [`StreamStats`]. Only the servers know the number of storage requests and their bytes.
#[derive(Default)]
pub(crate) struct Counters {
    rows: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    retries: AtomicU64,
    wait_nanos: AtomicU64,
    /// The time from opening the stream to its first batch; zero until that batch is delivered.
    first_batch_nanos: AtomicU64,
}

impl Counters {
    /// Counts a delivered batch. The consumer waited `waited` for it, and the stream was opened `since_opened` ago.
    pub fn delivered(&self, rows: u64, bytes: u64, waited: Duration, since_opened: Duration) {
        self.wait_nanos.fetch_add(to_nanos(waited), Ordering::Relaxed);
        if self.batches.fetch_add(1, Ordering::Relaxed) == 0 {
            self.first_batch_nanos.store(to_nanos(since_opened).max(1), Ordering::Relaxed);
        }
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts an interruption that the stream retried.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> StreamStats {
        let first = self.first_batch_nanos.load(Ordering::Relaxed);
        StreamStats {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            wait_nanos: self.wait_nanos.load(Ordering::Relaxed),
            first_batch_nanos: (first > 0).then_some(first),
            ..StreamStats::default()
        }
    }
}
