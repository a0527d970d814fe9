//! One rank's share of an epoch.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{Batching, LastBatch, Result, Topology, batching};

/// The share of an epoch that one rank reads, from a step on.
///
/// Rank r of W takes the positions p with `(p - origin) mod W == r`. Global batch *k*, counted from `origin`, is the
/// positions `origin + k·G .. origin + (k+1)·G`, where G is the global batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// The rank and the number of ranks.
    pub topology: Topology,
    /// The batch size and the policy for the last batch.
    pub batching: Batching,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position at which the epoch, or the last resumption in it, began.
    pub origin: u64,
    /// The first global batch to deliver, counted from `origin`.
    pub first_step: u64,
}

impl Slice {
    /// Makes the slice of a whole epoch.
    pub fn new(topology: Topology, batching: Batching, epoch: u64) -> Self {
        Self { topology, batching, epoch, origin: 0, first_step: 0 }
    }

    /// Checks that the rank and the batch size are within their ranges.
    ///
    /// # Errors
    /// [`Error::InvalidValue`](crate::Error::InvalidValue) for an invalid rank, world size or batch size.
    pub fn validate(&self) -> Result<()> {
        batching::validate(&self.batching, self.topology)
    }

    /// Returns the number of rows in a global batch.
    pub fn global_batch(&self) -> u64 {
        self.batching.global(self.topology.world_size)
    }

    /// Returns the largest number of rows of one rank in a batch.
    pub fn rows_per_batch(&self) -> u64 {
        self.global_batch().div_ceil(u64::from(self.topology.world_size))
    }

    /// Returns whether the rank takes a position, which must not be before `origin`.
    pub fn takes(&self, position: u64) -> bool {
        position.saturating_sub(self.origin) % u64::from(self.topology.world_size) == u64::from(self.topology.rank)
    }

    /// Returns the number of steps from `origin` to the end of an epoch of `num_rows` rows. It is the same on all
    /// ranks.
    pub fn num_steps(&self, num_rows: u64) -> u64 {
        let left = num_rows.saturating_sub(self.origin);
        match self.batching.last {
            LastBatch::Drop => left / self.global_batch(),
            LastBatch::Pad | LastBatch::Uneven => left.div_ceil(self.global_batch()),
        }
    }

    /// Returns the positions of global batch `step` over all ranks, without padding.
    pub fn positions(&self, step: u64, num_rows: u64) -> Range<u64> {
        let global = self.global_batch();
        let start = self.origin.saturating_add(step.saturating_mul(global)).min(num_rows);
        start..start.saturating_add(global).min(num_rows)
    }

    /// Returns the position after global batch `step`, at which a resumed stream would begin.
    pub fn position_after(&self, step: u64, num_rows: u64) -> u64 {
        self.positions(step, num_rows).end
    }

    /// Returns which of `num_endpoints` endpoints serves the first row of this rank's share of global batch `step`. The
    /// following endpoints serve the following rows in rotation. Endpoint e is rank `rank + e·world_size` of
    /// `world_size·num_endpoints`.
    pub fn first_endpoint(&self, step: u64, num_endpoints: u32) -> u64 {
        let (world, rank) = (u64::from(self.topology.world_size), u64::from(self.topology.rank));
        let offset = step.saturating_mul(self.global_batch());
        let lead = (rank + world - offset % world) % world;
        (offset.saturating_add(lead) - rank) / world % u64::from(num_endpoints.max(1))
    }

    /// Returns this rank's share of global batch `step`: its positions in order, and how many of them are rows. The
    /// others are padding, which repeats rows of the same global batch cyclically.
    pub fn share(&self, step: u64, num_rows: u64) -> Share {
        let global = self.global_batch();
        let range = self.positions(step, num_rows);
        let world = u64::from(self.topology.world_size);
        let rank = u64::from(self.topology.rank);
        // The offset of the batch from the origin decides where in the batch this rank's first position lies.
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

/// One rank's share of one global batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    range: Range<u64>,
    lead: u64,
    world: u64,
    /// The number of rows that are not padding.
    pub num_valid: u64,
    /// The number of rows, padding included.
    pub num_rows: u64,
}

impl Share {
    /// Returns the position of row `index` of this share, where `index < num_rows`. The position of a padding row is
    /// one of the same global batch.
    pub fn position(&self, index: u64) -> u64 {
        let offset = self.lead + index * self.world;
        let length = self.range.end - self.range.start;
        self.range.start + if offset < length { offset } else { offset % length }
    }
}
