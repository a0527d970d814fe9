//! Parts of a message as they come.

use std::ops::Range;

use bytes::Bytes;

/// A message without its body.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessageHead {
    /// The IPC message.
    pub header: Bytes,
    /// The `app_metadata`; may be empty.
    pub metadata: Bytes,
    /// Bytes of the body.
    pub body_bytes: usize,
}

/// Memory for a part of a body.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// Where the part begins in the body.
    pub begin: usize,
    /// Memory of the part's length.
    pub memory: &'a mut [u8],
}

/// A body of which parts were read to their places.
#[derive(Debug, Default)]
pub(crate) struct MessageBody {
    /// What is not in a place, in one piece.
    rest: Bytes,
    /// What is, ascending.
    placed: Vec<Range<usize>>,
}

impl MessageBody {
    /// A body from the parts that are in places, ascending, and the bytes between and after them.
    pub fn new(rest: Bytes, placed: Vec<Range<usize>>) -> Self {
        Self { rest, placed }
    }

    /// Whether exactly this range was read to a place.
    pub fn is_placed(&self, range: &Range<usize>) -> bool {
        self.placed.binary_search_by_key(&range.start, |placed| placed.start).is_ok_and(|at| self.placed[at] == *range)
    }

    /// A range of the body; `None` when it goes beyond the end, or a part of it is in a place.
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

    /// What is not in a place.
    pub fn into_rest(self) -> Bytes {
        self.rest
    }
}
