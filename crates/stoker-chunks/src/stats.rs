//! Counts of requests and bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Running counts; shared by all reads of a stream.
#[derive(Debug, Default)]
pub struct IoStats {
    requests: AtomicU64,
    bytes_read: AtomicU64,
    bytes_used: AtomicU64,
    retries: AtomicU64,
}

/// The counts at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoTotals {
    /// Range reads: system calls on local files, GETs on object stores.
    pub requests: u64,
    /// Bytes read, those between wanted rows included.
    pub bytes_read: u64,
    /// Bytes of wanted rows.
    pub bytes_used: u64,
    /// Reads that were repeated after a transient fault.
    pub retries: u64,
}

impl IoStats {
    pub(crate) fn add_read(&self, bytes_read: u64, bytes_used: u64) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes_read, Ordering::Relaxed);
        self.bytes_used.fetch_add(bytes_used, Ordering::Relaxed);
    }

    pub(crate) fn add_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts now.
    pub fn totals(&self) -> IoTotals {
        IoTotals {
            requests: self.requests.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_used: self.bytes_used.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
        }
    }
}
