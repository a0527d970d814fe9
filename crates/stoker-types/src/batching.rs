//! How positions become batches for ranks.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The largest global batch, in rows; keeps position arithmetic far from overflow.
const GLOBAL_BATCH_MAX: u64 = 1 << 32;

/// Rows per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// Rows that each rank gets; the global batch grows with the ranks.
    PerRank(u64),
    /// Rows that all ranks get together; shares differ by at most one row.
    Global(u64),
}

/// What happens to the last global batch of an epoch when it is not full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// Rows of the same global batch are repeated, marked as invalid.
    #[default]
    Pad,
    /// It is not delivered.
    Drop,
    /// Ranks get what is left; shares differ by at most one row, and may be empty.
    Uneven,
}

impl LastBatch {
    const ALL: [LastBatch; 3] = [LastBatch::Pad, LastBatch::Drop, LastBatch::Uneven];

    /// The policy where none was asked for: one rank alone gets what is left, several get equal batches.
    pub fn default_of(topology: Topology) -> Self {
        if topology.world_size == 1 { LastBatch::Uneven } else { LastBatch::Pad }
    }

    /// The name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            LastBatch::Pad => "pad",
            LastBatch::Drop => "drop",
            LastBatch::Uneven => "uneven",
        }
    }

    /// The policy of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|last| last.as_str() == name)
    }
}

/// Batch size and last-batch policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Batching {
    /// Rows per batch.
    pub size: BatchSize,
    /// The policy for the last global batch.
    pub last: LastBatch,
}

impl Batching {
    /// Rows of a global batch over `world_size` ranks.
    pub fn global(&self, world_size: u32) -> u64 {
        match self.size {
            BatchSize::PerRank(rows) => rows.saturating_mul(u64::from(world_size)),
            BatchSize::Global(rows) => rows,
        }
    }
}

/// Which of how many ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// This rank, from zero.
    pub rank: u32,
    /// Ranks in all.
    pub world_size: u32,
}

impl Topology {
    /// The only rank of a job.
    pub const SINGLE: Topology = Topology { rank: 0, world_size: 1 };

    /// A rank of a world.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] unless `rank < world_size`.
    pub fn try_new(rank: u32, world_size: u32) -> Result<Self> {
        if rank >= world_size {
            return Err(Error::InvalidValue {
                what: "rank",
                reason: format!("rank {rank} is not below the world size {world_size}"),
            });
        }
        Ok(Self { rank, world_size })
    }
}

/// Checks batch size and topology together.
pub(crate) fn validate(batching: &Batching, topology: Topology) -> Result<()> {
    Topology::try_new(topology.rank, topology.world_size)?;
    let rows = match batching.size {
        BatchSize::PerRank(rows) | BatchSize::Global(rows) => rows,
    };
    let global = batching.global(topology.world_size);
    if rows == 0 || global > GLOBAL_BATCH_MAX {
        return Err(Error::InvalidValue {
            what: "batch size",
            reason: format!("{rows} rows make a global batch of {global}; it must be between 1 and {GLOBAL_BATCH_MAX}"),
        });
    }
    Ok(())
}
