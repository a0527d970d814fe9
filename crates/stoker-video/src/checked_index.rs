//! An index with a checksum of each frame, as it is stored beside the videos of a column.

use stoker_checksum::checksum;

use crate::{BadVideo, ByteSource, Packets, VideoIndex};

/// An index, and a checksum of each compressed frame, so that the frames of a clip can be verified without the rest of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedIndex {
    index: VideoIndex,
    /// In decoding order; empty for an index that was stored without checksums.
    checksums: Vec<u32>,
}

impl CheckedIndex {
    /// Reads the index of a file as [`VideoIndex::read`] does, and computes the checksums of its frames.
    ///
    /// # Errors
    /// As [`VideoIndex::read`].
    pub fn read(file: &[u8]) -> Result<Self, BadVideo> {
        let index = VideoIndex::read(file)?;
        let mut checksums = Vec::with_capacity(index.frames().len());
        for (number, frame) in index.frames().iter().enumerate() {
            let bytes = file.bytes(frame.offset, frame.size as usize);
            let missing = || BadVideo::new(format!("frame {number} lies beyond the end of the file"));
            checksums.push(checksum(bytes.ok_or_else(missing)?));
        }
        Ok(Self { index, checksums })
    }

    /// Returns the stored form: that of [`VideoIndex::to_bytes`], and 4 bytes per frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self.has_checksums() {
            true => self.index.to_checked_bytes(&self.checksums),
            false => self.index.to_bytes(),
        }
    }

    /// Reads what [`CheckedIndex::to_bytes`] or [`VideoIndex::to_bytes`] wrote. Memory is bounded by the length of `bytes`.
    ///
    /// # Errors
    /// [`BadVideo`] for bytes that are damaged or of another version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadVideo> {
        let (index, checksums) = VideoIndex::from_checked_bytes(bytes)?;
        Ok(Self { index, checksums })
    }

    /// The index.
    pub fn index(&self) -> &VideoIndex {
        &self.index
    }

    /// Whether the frames have checksums. Those of an index of version 1 have none.
    pub fn has_checksums(&self) -> bool {
        self.checksums.len() == self.index.frames().len()
    }

    /// Returns the first of some compressed frames that `source` does not have, or whose bytes differ from their checksum,
    /// by its number in decoding order.
    pub fn first_damaged<S: ByteSource + ?Sized>(&self, packets: &Packets, source: &S) -> Option<usize> {
        packets.numbers().find(|number| {
            let frame = self.index.frames().get(*number);
            let bytes = frame.and_then(|frame| source.bytes(frame.offset, frame.size as usize));
            let Some(bytes) = bytes else { return true };
            self.checksums.get(*number).is_some_and(|expected| *expected != checksum(bytes))
        })
    }
}
