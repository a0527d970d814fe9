//! The compressed frames of a clip of a row.

use std::ops::Range;
use std::sync::Arc;

use arrow_buffer::Buffer;
use futures::future::try_join_all;
use stoker_chunks::{ChunkScan, Freshness};
use stoker_lake::RangeReader;
use stoker_video::{CheckedIndex, ClipBytes, Packets, Pieces};

use crate::Result;

/// The frames of a clip, and where they lie.
pub(super) struct FoundFrames {
    pub index: Arc<CheckedIndex>,
    /// `None` for a clip that does not lie in the video: the consumer finds out, too, and needs no frames for it.
    pub packets: Option<Packets>,
    /// The ranges of the frames in the file of the video, and the bytes once they are read.
    pub ranges: Vec<Range<u64>>,
    pub bytes: Vec<Buffer>,
    pub reader: RangeReader,
    /// The offset of the video in the data file.
    pub offset: u64,
}

impl FoundFrames {
    /// Reads the bytes of the frames and compares them with their checksums. `are_fixed` says that the row has the same
    /// frames in every epoch, so that a cache keeps them. Returns `false` if they differ in two reads; the file is to be
    /// read as a whole then: its own checksum tells whether the file or its index is damaged.
    pub async fn fill(&mut self, scan: &ChunkScan, are_fixed: bool) -> Result<bool> {
        for freshness in [if are_fixed { Freshness::Kept } else { Freshness::Any }, Freshness::PastCache] {
            self.bytes.clear();
            let reads = self.ranges.iter().map(|range| {
                let range = self.offset + range.start..self.offset + range.end;
                scan.read_range(&self.reader, range, freshness)
            });
            self.bytes = try_join_all(reads).await?;
            if !scan.verifies() || self.are_sound() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of bytes that were read.
    pub fn num_bytes(&self) -> usize {
        self.bytes.iter().map(Buffer::len).sum()
    }

    /// Whether all frames have their checksums.
    fn are_sound(&self) -> bool {
        let pieces = self.ranges.iter().zip(&self.bytes).map(|(range, bytes)| (range.start, bytes.as_slice()));
        let source = Pieces::new(pieces.collect());
        self.packets.as_ref().is_none_or(|packets| self.index.first_damaged(packets, &source).is_none())
    }

    /// Returns the value that is delivered.
    pub fn into_value(self) -> Vec<u8> {
        let mut value = ClipBytes::head(self.index.index(), &self.ranges);
        value.reserve_exact(self.num_bytes());
        self.bytes.iter().for_each(|bytes| value.extend_from_slice(bytes));
        value
    }
}
