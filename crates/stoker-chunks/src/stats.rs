//! Counters of requests and bytes.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Running counters, shared by all reads of a stream.
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

/// The values of the counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Reads of ranges: system calls on local files; GETs on object stores, without those of retries and hedges.
    pub requests: u64,
    /// Bytes that were read: wanted rows, the bytes between them, and the bytes that aligned direct reads of local
    /// files add.
    pub bytes_read: u64,
    /// Bytes of wanted rows.
    pub bytes_used: u64,
    /// Reads that were repeated after a transient fault.
    pub retries: u64,
    /// Second GETs for reads that took much longer than others.
    pub hedges: u64,
    /// Hedges that finished before the first GET.
    pub hedges_won: u64,
    /// Bytes that were compared with the checksums of their rows.
    pub verified_bytes: u64,
    /// Rows that did not match their checksums in two reads.
    pub bad_rows: u64,
    /// Bytes of chunks that were read from the cache.
    pub cache_hit_bytes: u64,
    /// Bytes of chunks that were requested from the cache but not found there.
    pub cache_miss_bytes: u64,
    /// Damaged chunks in the cache. They were removed and read from their stores.
    pub cache_damaged: u64,
}

impl AddAssign for IoTotals {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes_read += other.bytes_read;
        self.bytes_used += other.bytes_used;
        self.retries += other.retries;
        self.hedges += other.hedges;
        self.hedges_won += other.hedges_won;
        self.verified_bytes += other.verified_bytes;
        self.bad_rows += other.bad_rows;
        self.cache_hit_bytes += other.cache_hit_bytes;
        self.cache_miss_bytes += other.cache_miss_bytes;
        self.cache_damaged += other.cache_damaged;
    }
}

/// The reads that a range needed.
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
