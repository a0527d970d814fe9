//! One rank's share of an epoch.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Batching, LastBatch, Result, Topology, batching};

/// The part of an epoch that one rank reads, from a step on.
///
/// Rank r of W takes the positions p with `(p - origin) mod W == r`. Global batch *k*, counted from `origin`, is the
/// positions `origin + k·G .. origin + (k+1)·G`, where G is the global batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// Which rank.
    pub topology: Topology,
    /// Batch size and last-batch policy.
    pub batching: Batching,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position where the epoch or the last resume began.
    pub origin: u64,
    /// The first global batch to deliver, counted from `origin`.
    pub first_step: u64,
}

impl Slice {
    /// A whole epoch from its start.
    pub fn new(topology: Topology, batching: Batching, epoch: u64) -> Self {
        Self { topology, batching, epoch, origin: 0, first_step: 0 }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// Invalid rank, world size or batch size.
    pub fn validate(&self) -> Result<()> {
        batching::validate(&self.batching, self.topology)
    }

    /// Rows of a global batch.
    pub fn global_batch(&self) -> u64 {
        self.batching.global(self.topology.world_size)
    }

    /// Steps from `origin` to the end of an epoch of `num_rows` rows; equal on all ranks.
    pub fn num_steps(&self, num_rows: u64) -> u64 {
        let left = num_rows.saturating_sub(self.origin);
        match self.batching.last {
            LastBatch::Drop => left / self.global_batch(),
            LastBatch::Pad | LastBatch::Uneven => left.div_ceil(self.global_batch()),
        }
    }

    /// The positions of global batch `step` that hold rows, over all ranks.
    pub fn positions(&self, step: u64, num_rows: u64) -> Range<u64> {
        let global = self.global_batch();
        let start = self.origin.saturating_add(step.saturating_mul(global)).min(num_rows);
        start..start.saturating_add(global).min(num_rows)
    }

    /// The position after global batch `step`: where a resume would begin.
    pub fn position_after(&self, step: u64, num_rows: u64) -> u64 {
        self.positions(step, num_rows).end
    }

    /// Which of `num_endpoints` serves the first row of this rank's part of global batch `step`; the next serves the second
    /// row, and so on in turns. Endpoint e is rank `rank + e·world_size` of `world_size·num_endpoints`.
    pub fn first_endpoint(&self, step: u64, num_endpoints: u32) -> u64 {
        let (world, rank) = (u64::from(self.topology.world_size), u64::from(self.topology.rank));
        let offset = step.saturating_mul(self.global_batch());
        let lead = (rank + world - offset % world) % world;
        (offset + lead - rank) / world % u64::from(num_endpoints.max(1))
    }

    /// This rank's positions of global batch `step` in order, and how many of them are rows; the rest is padding that
    /// repeats the rows of the same global batch cyclically.
    pub fn share(&self, step: u64, num_rows: u64) -> Share {
        let global = self.global_batch();
        let range = self.positions(step, num_rows);
        let world = u64::from(self.topology.world_size);
        let rank = u64::from(self.topology.rank);
        // Offset of the batch from the origin, which decides where in the batch this rank's first position lies.
        let offset = step.saturating_mul(global);
        let lead = (rank + world - offset % world) % world;
        let count = |rows: u64| if rows > lead { (rows - lead).div_ceil(world) } else { 0 };
        let num_valid = count(range.end - range.start);
        let num_rows = match self.batching.last {
            LastBatch::Pad if range.end > range.start => count(global),
            LastBatch::Pad | LastBatch::Drop | LastBatch::Uneven => num_valid,
        };
        Share { range, lead, world, num_valid, num_rows }
    }
}

/// One rank's part of one global batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    range: Range<u64>,
    lead: u64,
    world: u64,
    /// Rows that are not padding.
    pub num_valid: u64,
    /// Rows in all.
    pub num_rows: u64,
}

impl Share {
    /// The position of row `index` of this share, `index < num_rows`. Padding maps to positions of the same global batch.
    pub fn position(&self, index: u64) -> u64 {
        let offset = self.lead + index * self.world;
        let length = self.range.end - self.range.start;
        self.range.start + if offset < length { offset } else { offset % length }
    }
}
