//! Calls about streams and the server that serves them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::about_tables::Checked;
use crate::{ColumnClip, Digest};

/// Rows whose addresses one [`FindRows`] asks for, at most.
pub const ROW_ADDRS_MAX: u64 = 1 << 18;

/// Asks for the version of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetVersion {}

impl Checked for GetVersion {}

/// The answer to [`GetVersion`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerVersion {
    /// The version of the package, for example `0.1.0`.
    pub version: String,
}

/// Asks what the server did since it started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GetStatus {}

impl Checked for GetStatus {}

/// The answer to [`GetStatus`]. Sums are over all streams; a running stream adds to them about once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Streams that are open.
    pub streams_running: u64,
    /// Streams that ended.
    pub streams_ended: u64,
    /// Batches delivered.
    pub batches: u64,
    /// Rows delivered.
    pub rows: u64,
    /// Bytes of the delivered columns.
    pub bytes: u64,
    /// Bytes of the messages that carried them: fewer where they were compressed.
    pub bytes_sent: u64,
    /// Range reads of dense columns.
    pub requests: u64,
    /// Range reads repeated after transient faults.
    pub retries: u64,
    /// Second GETs for slow range reads.
    pub hedges: u64,
    /// Bytes that the range reads brought.
    pub bytes_read: u64,
    /// Bytes of chunks that came from the cache.
    pub cache_hit_bytes: u64,
    /// Bytes of chunks that the cache did not have.
    pub cache_miss_bytes: u64,
    /// Chunks that were damaged in the cache.
    pub cache_damaged: u64,
    /// Seconds that streams waited for storage.
    pub storage_secs: f64,
    /// Seconds that streams waited for decoding.
    pub decode_secs: f64,
    /// Seconds in which streams sent their batches, or waited for clients to take them.
    pub consumer_secs: f64,
    /// Bytes of batches that all streams together may hold.
    pub memory_budget_bytes: u64,
    /// Bytes of batches that all streams together hold now.
    pub memory_held_bytes: u64,
    /// Requests to object stores that all streams together may have in flight now.
    pub request_limit: u64,
}

/// Asks for the streams that are open, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListStreams {}

impl Checked for ListStreams {}

/// A stream that is open: one rank's share of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenStream {
    /// The stream.
    pub stream_id: Digest,
    /// The name of the client's token or certificate and its address; `local` for a stream of this process.
    pub client: String,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The rank, from zero. Where a client reads over several endpoints, each endpoint is a rank of a larger world.
    pub rank: u32,
    /// Ranks in all.
    pub world_size: u32,
    /// The first step of the slice, counted from the slice's origin.
    pub first_step: u64,
    /// Rows delivered so far, padding included.
    pub rows: u64,
    /// Bytes of the delivered columns so far.
    pub bytes: u64,
    /// Bytes of batches that the stream holds in memory now.
    pub held_bytes: u64,
    /// Seconds since the stream was opened.
    pub secs: f64,
}

/// Asks for the addresses of the rows at some positions of an epoch: for each table of the stream, one for each position;
/// 2^64 − 1 where the table does not supply the row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindRows {
    /// The stream.
    pub stream_id: Digest,
    /// The epoch, from zero.
    #[serde(default)]
    pub epoch: u64,
    /// The positions, at most [`ROW_ADDRS_MAX`].
    pub positions: Range<u64>,
}

impl Checked for FindRows {
    fn checked(&self) -> Result<(), String> {
        match self.positions.end.saturating_sub(self.positions.start) > ROW_ADDRS_MAX {
            true => Err(format!("returns at most {ROW_ADDRS_MAX} rows per call, {:?} are more", self.positions)),
            false => Ok(()),
        }
    }
}

/// Asks which columns are null in a row of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindNulls {
    /// The stream.
    pub stream_id: Digest,
    /// The columns to look at.
    #[serde(default)]
    pub columns: Vec<String>,
}

impl Checked for FindNulls {}

/// A row of the window of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The position in the epoch.
    pub position: u64,
    /// How many rows after the position in its window, cyclically; 0 for the row at the position itself.
    pub offset: u64,
}

/// Asks for rows of the windows of an epoch: the first ones of those named, at least one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadBeside {
    /// The stream, where the lake keeps its specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_id: Option<Digest>,
    /// The specification of the stream as JSON, where the lake cannot keep it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<String>,
    /// The epoch, from zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<Beside>,
    /// Whether checksums are not verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unverified: bool,
    /// Milliseconds for which reads are retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_budget_millis: Option<u64>,
    /// The clips of columns of videos, as those of the stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clips: Vec<ColumnClip>,
}

impl Checked for ReadBeside {
    fn checked(&self) -> Result<(), String> {
        match (self.stream_id, &self.spec, self.epoch) {
            (None, None, _) => Err("needs stream_id or spec".into()),
            (_, _, None) => Err("needs epoch".into()),
            _ => Ok(()),
        }
    }
}
