//! What is left of a frame.

use super::frame::{FrameHead, PADDED};
use super::input::INPUT_BYTES;
use super::violation;
use crate::Result;

/// Frames from this size on are large: after one, little is read ahead, because the next one may be large as well.
const LARGE_BYTES: usize = 128 << 10;
/// About what comes between two large frames.
const BETWEEN_BYTES: usize = 4 << 10;

/// The part of the current frame that was not read yet.
#[derive(Default)]
pub(super) struct Payload {
    /// Bytes of the answer.
    pub data: usize,
    /// Bytes after them that mean nothing.
    pub skip: usize,
    is_large: bool,
}

impl Payload {
    /// Of a DATA frame, after the byte that says how much padding there is.
    pub fn data(head: FrameHead, padding: Option<u8>) -> Result<Self> {
        let skip = padding.map_or(0, usize::from);
        let data = head.length.checked_sub(skip + usize::from(head.has(PADDED)));
        let data = data.ok_or_else(|| violation("a frame is shorter than its padding"))?;
        Ok(Self { data, skip, is_large: data >= LARGE_BYTES })
    }

    /// How many bytes to read at once for what comes after the frame.
    pub fn fill_bytes(&self) -> usize {
        if self.is_large { BETWEEN_BYTES } else { INPUT_BYTES }
    }
}
