//! Counters of requests and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

use stoker_types::IoTotals;

/// Running counts; shared by all reads of a stream.
#[derive(Debug, Default)]
pub struct IoStats {
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_used: AtomicU64,
    retries: AtomicU64,
    hedges: AtomicU64,
    hedges_won: AtomicU64,
    verified_bytes: AtomicU64,
    bad_rows: AtomicU64,
    cache_hit_bytes: AtomicU64,
    cache_miss_bytes: AtomicU64,
    cache_damaged: AtomicU64,
}

/// What reading a range took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The number of reads, as in [`IoTotals::requests`].
    pub requests: u64,
    /// The number of bytes that were requested.
    pub bytes: u64,
}

impl IoStats {
    pub(crate) fn add_read(&self, asked: Asked, bytes_used: u64) {
        self.requests.fetch_add(asked.requests, Ordering::Relaxed);
        self.bytes_read.fetch_add(asked.bytes, Ordering::Relaxed);
        self.bytes_used.fetch_add(bytes_used, Ordering::Relaxed);
    }

    pub(crate) fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_hedge(&self) {
        self.hedges.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_hedge_won(&self) {
        self.hedges_won.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_verified(&self, bytes: u64) {
        self.verified_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_bad_row(&self) {
        self.bad_rows.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_cache_hit(&self, bytes: u64) {
        self.cache_hit_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_cache_miss(&self, bytes: u64) {
        self.cache_miss_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_cache_damaged(&self) {
        self.cache_damaged.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current values.
    pub fn totals(&self) -> IoTotals {
        IoTotals {
            requests: self.requests.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_used: self.bytes_used.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            hedges: self.hedges.load(Ordering::Relaxed),
            hedges_won: self.hedges_won.load(Ordering::Relaxed),
            verified_bytes: self.verified_bytes.load(Ordering::Relaxed),
            bad_rows: self.bad_rows.load(Ordering::Relaxed),
            cache_hit_bytes: self.cache_hit_bytes.load(Ordering::Relaxed),
            cache_miss_bytes: self.cache_miss_bytes.load(Ordering::Relaxed),
            cache_damaged: self.cache_damaged.load(Ordering::Relaxed),
        }
    }
}
