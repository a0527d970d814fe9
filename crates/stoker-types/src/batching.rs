//! How the positions of an epoch are grouped into batches for ranks.

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The largest global batch, in rows. The limit keeps arithmetic on positions far from overflow.
const GLOBAL_BATCH_MAX: u64 = 1 << 32;

/// Rows per batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchSize {
    /// The rows that each rank gets. The global batch grows with the number of ranks.
    PerRank(u64),
    /// The rows that all ranks get together. The shares of two ranks differ by at most one row.
    Global(u64),
}

/// What happens to the last global batch of an epoch when it is not full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastBatch {
    /// The batch is filled up by repeating rows of the same global batch. The repeated rows are marked as invalid.
    #[default]
    Pad,
    /// The batch is not delivered.
    Drop,
    /// The ranks divide the rows that are left. Their shares differ by at most one row, and a share may be empty.
    Uneven,
}

impl LastBatch {
    const ALL: [LastBatch; 3] = [LastBatch::Pad, LastBatch::Drop, LastBatch::Uneven];

    /// Returns the policy for a request that names none: [`LastBatch::Uneven`] for a single rank, [`LastBatch::Pad`]
    /// for several, so that all of them get equal batches.
    pub fn default_of(topology: Topology) -> Self {
        if topology.world_size == 1 { LastBatch::Uneven } else { LastBatch::Pad }
    }

    /// Returns the policy's name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            LastBatch::Pad => "pad",
            LastBatch::Drop => "drop",
            LastBatch::Uneven => "uneven",
        }
    }

    /// Returns the policy with this name.
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
    /// Returns the rows of a global batch for `world_size` ranks.
    pub fn global(&self, world_size: u32) -> u64 {
        match self.size {
            BatchSize::PerRank(rows) => rows.saturating_mul(u64::from(world_size)),
            BatchSize::Global(rows) => rows,
        }
    }
}

/// A rank and the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Topology {
    /// This rank, from zero.
    pub rank: u32,
    /// The number of ranks.
    pub world_size: u32,
}

impl Topology {
    /// The topology of a job that has one rank.
    pub const SINGLE: Topology = Topology { rank: 0, world_size: 1 };

    /// Makes a topology from a rank and a world size.
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

/// Checks the batch size and the topology together.
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
