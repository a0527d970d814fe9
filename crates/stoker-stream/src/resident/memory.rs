//! The memory of a stream for resident rows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use stoker_batch::{MemoryBudget, Quota};

use crate::depth::Depth;

/// The bytes of blocks that are read before they are opened, over all streams of the process: what hides the latency of
/// most object stores.
pub(super) const AHEAD_BYTES: u64 = 64 << 20;

/// The same number at most, where the latency is greater.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// The memory of a stream for resident rows. The stream is another member of the budget with it, so that resident rows
/// never keep a batch from being read.
#[derive(Debug)]
pub(crate) struct ResidentMemory {
    budget: MemoryBudget,
    streams: ResidentStreams,
    cap_bytes: AtomicU64,
    quota: OnceLock<Quota>,
}

/// The number of streams of a process that have resident rows. Clones are the same number.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResidentStreams(Arc<AtomicU64>);

impl ResidentMemory {
    /// Returns the memory of a stream that may hold `bytes`, and the part of these bytes that is left for batches.
    pub fn divided(budget: &MemoryBudget, streams: &ResidentStreams, bytes: u64) -> (Self, u64) {
        let (budget, streams) = (budget.clone(), streams.clone());
        let cap_bytes = AtomicU64::new(resident_bytes(bytes));
        (Self { budget, streams, cap_bytes, quota: OnceLock::new() }, bytes - resident_bytes(bytes))
    }

    /// Sets the bytes that the stream may hold, before its first resident row is read. Returns the part of these bytes
    /// that is left for batches.
    pub fn begin(&self, bytes: u64) -> u64 {
        self.cap_bytes.store(resident_bytes(bytes), Ordering::Relaxed);
        bytes - resident_bytes(bytes)
    }

    /// Returns how far the stream reads ahead of the super-strides that are delivered.
    pub fn depth(&self) -> Depth {
        Depth::new(AHEAD_BYTES, AHEAD_BYTES_MAX.min(self.cap_bytes.load(Ordering::Relaxed) / 2))
    }

    /// Returns the bytes that resident rows hold now.
    pub fn held_bytes(&self) -> u64 {
        self.quota.get().map_or(0, Quota::held_bytes)
    }

    /// Returns the share of this stream, if all streams of the process with resident rows share `bytes` equally.
    pub fn share_of(&self, bytes: u64) -> u64 {
        bytes / self.streams.0.load(Ordering::Relaxed).max(1)
    }

    /// Joins the budget, unless that was done before.
    pub(super) fn quota(&self) -> Quota {
        let join = || {
            self.streams.0.fetch_add(1, Ordering::Relaxed);
            self.budget.join(self.cap_bytes.load(Ordering::Relaxed))
        };
        self.quota.get_or_init(join).clone()
    }
}

impl Drop for ResidentMemory {
    fn drop(&mut self) {
        if self.quota.get().is_some() {
            self.streams.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Returns the part of a stream's memory budget that is for resident rows.
fn resident_bytes(bytes: u64) -> u64 {
    bytes / 4 * 3
}
