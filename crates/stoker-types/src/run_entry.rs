//! What the logs of runs hold: which step had which positions, and the bad rows that were met.

use serde::{Deserialize, Serialize};

use crate::{Digest, LastBatch, RunId, TableName};

/// The reason for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEvent {
    /// An epoch began.
    Epoch,
    /// The run was continued after an interruption, or with another batch size.
    Resume,
    /// Positions were skipped.
    Skip,
    /// The weights of a mixture changed.
    Weights,
}

impl RunEvent {
    /// Returns the event's name in the table.
    pub fn as_str(self) -> &'static str {
        match self {
            RunEvent::Epoch => "epoch",
            RunEvent::Resume => "resume",
            RunEvent::Skip => "skip",
            RunEvent::Weights => "weights",
        }
    }

    /// The event of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Epoch, Self::Resume, Self::Skip, Self::Weights].into_iter().find(|event| event.as_str() == name)
    }
}

/// An entry of the log of a run: the positions that are delivered from a step on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunEntry {
    /// The run.
    pub run_id: RunId,
    /// The reason for the entry.
    pub event: RunEvent,
    /// The stream id.
    pub stream_id: Digest,
    /// The first step of the entry.
    pub step: u64,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position of the first step.
    pub position: u64,
    /// The number of rows in a global batch.
    pub global_batch: u64,
    /// The policy for the last batch of the epoch.
    pub last_batch: LastBatch,
    /// The number of ranks.
    pub world_size: u32,
    /// The time at which the entry was written, in microseconds since 1970 UTC. Times ascend within a run.
    pub time_micros: i64,
}

/// A bad row that was replaced by another row in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BadRowEntry {
    /// The run.
    pub run_id: RunId,
    /// The stream id.
    pub stream_id: Digest,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position of the bad row.
    pub position: u64,
    /// The table that supplies the bad row.
    pub table: TableName,
    /// The version of the table.
    pub version: u64,
    /// The address of the bad row.
    pub row_addr: u64,
    /// What is wrong with the bad row.
    pub reason: String,
}
