//! What a stream did so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stoker_chunks::IoStats;

/// What a stream did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Rows delivered, padding included.
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Range reads of dense columns.
    pub requests: u64,
    /// Bytes that those reads brought.
    pub bytes_read: u64,
    /// Reads repeated after transient faults.
    pub retries: u64,
    /// Second GETs for reads that were slow beyond their peers.
    pub hedges: u64,
    /// Bytes that were compared with their checksums.
    pub verified_bytes: u64,
    /// Nanoseconds that the consumer waited in `next`.
    pub wait_nanos: u64,
    /// Nanoseconds from opening to the first batch.
    pub first_batch_nanos: Option<u64>,
}

/// The counters behind [`StreamStats`].
#[derive(Debug)]
pub(crate) struct Counters {
    pub io: Arc<IoStats>,
    pub rows: AtomicU64,
    pub bytes: AtomicU64,
    pub batches: AtomicU64,
    pub wait_nanos: AtomicU64,
    /// Zero until the first batch.
    pub first_batch_nanos: AtomicU64,
}

impl Counters {
    pub fn new(io: Arc<IoStats>) -> Self {
        Self {
            io,
            rows: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            wait_nanos: AtomicU64::new(0),
            first_batch_nanos: AtomicU64::new(0),
        }
    }

    pub fn snapshot(&self) -> StreamStats {
        let io = self.io.totals();
        let first = self.first_batch_nanos.load(Ordering::Relaxed);
        StreamStats {
            rows: self.rows.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            batches: self.batches.load(Ordering::Relaxed),
            requests: io.requests,
            bytes_read: io.bytes_read,
            retries: io.retries,
            hedges: io.hedges,
            verified_bytes: io.verified_bytes,
            wait_nanos: self.wait_nanos.load(Ordering::Relaxed),
            first_batch_nanos: (first > 0).then_some(first),
        }
    }
}
