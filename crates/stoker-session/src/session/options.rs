//! How one rank reads a stream.

use serde::{Deserialize, Serialize};
use stoker_types::{Batching, LastBatch, ReadOptions, RunId, Slice, Topology};

use crate::DecodeOptions;
use crate::session::Progress;

/// How one rank reads a stream. These options change neither the rows nor their order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionOptions {
    /// The rank and the number of ranks.
    pub topology: Topology,
    /// The batch size and the policy for the last batch of an epoch.
    pub batching: Batching,
    /// How batches are read.
    pub read: ReadOptions,
    /// The columns to decode. Compressed tensors are decoded in any case, unless these options keep them as they are stored.
    pub decode: Option<DecodeOptions>,
    /// Whether every pass delivers the same epoch from its start.
    pub evaluation: bool,
    /// The run whose log and bad rows are written; `None` to write nothing.
    pub run_id: Option<RunId>,
    /// Whether a state may have another version of the order than the stream: the stream was requested without one, so
    /// that a newer build may have planned it with a newer version than the state's.
    pub any_order_version: bool,
    /// Whether the next epoch is prefetched when the last rows of an epoch are being read.
    pub opens_ahead: bool,
}

impl SessionOptions {
    /// Makes the options of a rank with default reads: no decoding, no run log, with prefetch of the next epoch, and states
    /// of the stream's version of the order only.
    pub fn new(topology: Topology, batching: Batching) -> Self {
        let read = ReadOptions::default();
        Self {
            topology,
            batching,
            read,
            decode: None,
            evaluation: false,
            run_id: None,
            any_order_version: false,
            opens_ahead: true,
        }
    }

    /// Returns the number of rows in a global batch.
    pub fn global_batch(&self) -> u64 {
        self.batching.global(self.topology.world_size)
    }

    /// Returns the maximum number of rows of this rank's batches.
    pub fn rank_batch(&self) -> u64 {
        self.global_batch().div_ceil(u64::from(self.topology.world_size.max(1)))
    }

    /// Returns whether all batches of all ranks have the same number of rows.
    pub fn has_equal_batches(&self) -> bool {
        let is_even = self.global_batch().is_multiple_of(u64::from(self.topology.world_size.max(1)));
        is_even && self.batching.last != LastBatch::Uneven
    }

    /// Returns the slice at some progress.
    pub(super) fn slice(&self, progress: &Progress) -> Slice {
        let Progress { epoch, origin, next_step, .. } = *progress;
        Slice { topology: self.topology, batching: self.batching, epoch, origin, first_step: next_step }
    }
}
