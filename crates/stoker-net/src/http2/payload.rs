//! The unread rest of a frame.

use super::frame::{FrameHead, PADDED};
use super::input::INPUT_BYTES;
use super::violation;
use crate::Result;

/// The size from which frames are large. After a large frame the input buffer reads little, because the next frame may
/// be large as well, and its data should go straight to the caller's memory.
const LARGE_BYTES: usize = 128 << 10;
/// About the number of bytes between two large frames.
const BETWEEN_BYTES: usize = 4 << 10;

/// The unread rest of the current frame.
#[derive(Default)]
pub(super) struct Payload {
    /// Unread bytes of the answer.
    pub data: usize,
    /// Bytes after the data that are skipped, such as padding.
    pub skip: usize,
    is_large: bool,
}

impl Payload {
    /// The payload of a DATA frame, after the byte with the length of its padding.
    pub fn data(head: FrameHead, padding: Option<u8>) -> Result<Self> {
        let skip = padding.map_or(0, usize::from);
        let data = head.length.checked_sub(skip + usize::from(head.has(PADDED)));
        let data = data.ok_or_else(|| violation("a frame is shorter than its padding"))?;
        Ok(Self { data, skip, is_large: data >= LARGE_BYTES })
    }

    /// Returns how many bytes to read at once for what follows the frame.
    pub fn fill_bytes(&self) -> usize {
        if self.is_large { BETWEEN_BYTES } else { INPUT_BYTES }
    }
}
