//! Positions in a stream.

use serde::{Deserialize, Serialize};

use crate::Digest;

/// All that is needed to continue a stream anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cursor {
    /// The stream.
    pub stream_id: Digest,
    /// The epoch, from zero.
    pub epoch: u64,
    /// The next position of the epoch's order that was not delivered, over all ranks.
    pub position: u64,
}
