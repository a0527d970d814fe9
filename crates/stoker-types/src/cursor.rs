//! The cursor of a stream.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// Everything that is needed to continue a stream on any machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The stream id.
    pub stream_id: Digest,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The first position of the epoch's order that was not delivered, counted over all ranks.
    pub position: u64,
}
