//! The parts of a message, in the order in which they arrive.

use std::ops::Range;

use bytes::Bytes;

/// A message without its body.
#[derive(Clone, Debug, Default)]
pub struct MessageHead {
    /// The IPC message without its body.
    pub header: Bytes,
    /// The `app_metadata`; may be empty.
    pub metadata: Bytes,
    /// The size of the body in bytes.
    pub body_bytes: usize,
}

/// A buffer slot: memory for a part of a body, in the batch.
#[derive(Debug)]
pub struct BufferSlot<'a> {
    /// The offset of the part in the body.
    pub begin: usize,
    /// The memory, as long as the part.
    pub memory: &'a mut [u8],
}

/// A body of which parts were read to buffer slots.
#[derive(Debug, Default)]
pub struct MessageBody {
    /// The bytes that are in no slot, concatenated.
    rest: Bytes,
    /// The ranges of the body that are in slots, ascending.
    placed: Vec<Range<usize>>,
}

impl MessageBody {
    /// Creates a body from the ranges that are in slots, ascending, and the bytes between and after them.
    pub fn new(rest: Bytes, placed: Vec<Range<usize>>) -> Self {
        Self { rest, placed }
    }

    /// Returns whether exactly this range was read to a slot.
    pub fn is_placed(&self, range: &Range<usize>) -> bool {
        self.placed.binary_search_by_key(&range.start, |placed| placed.start).is_ok_and(|at| self.placed[at] == *range)
    }

    /// Returns a range of the body; `None` if it goes beyond the end, or a part of it is in a slot.
    pub fn slice(&self, range: Range<usize>) -> Option<Bytes> {
        if range.is_empty() {
            return Some(Bytes::new());
        }
        let before = self.placed.partition_point(|placed| placed.end <= range.start);
        if self.placed.get(before).is_some_and(|next| next.start < range.end) {
            return None;
        }
        let missing: usize = self.placed[..before].iter().map(Range::len).sum();
        let (start, end) = (range.start - missing, range.end - missing);
        (end <= self.rest.len()).then(|| self.rest.slice(start..end))
    }

    /// Returns the bytes that are in no slot.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }
}
