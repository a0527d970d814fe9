//! Bytes as they came: in pieces.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_buffer::{Buffer, MutableBuffer};
use bytes::{Buf, Bytes, BytesMut};

/// Bytes in pieces. Taking from the front copies nothing.
#[derive(Debug, Default)]
pub(crate) struct Rope {
    pieces: VecDeque<Bytes>,
    len: usize,
}

impl Rope {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn push(&mut self, piece: Bytes) {
        self.len += piece.len();
        if !piece.is_empty() {
            self.pieces.push_back(piece);
        }
    }

    /// The first `bytes` bytes; `None` when there are fewer.
    pub fn split_to(&mut self, bytes: usize) -> Option<Rope> {
        if bytes > self.len {
            return None;
        }
        let mut taken = Rope::default();
        while taken.len < bytes {
            let missing = bytes - taken.len;
            let piece = self.pieces.front_mut()?;
            let piece = if piece.len() > missing { piece.split_to(missing) } else { self.pieces.pop_front()? };
            self.len -= piece.len();
            taken.push(piece);
        }
        Some(taken)
    }

    /// All bytes in one piece; copied only when there are several.
    pub fn into_bytes(mut self) -> Bytes {
        if self.pieces.len() == 1 {
            return self.pieces.pop_front().unwrap_or_default();
        }
        let mut bytes = BytesMut::with_capacity(self.len);
        self.pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.freeze()
    }

    /// All bytes in one buffer; aligned when they had to be copied.
    pub fn into_buffer(self) -> Buffer {
        match self.pieces.len() {
            1 => self.into_bytes().into(),
            _ => self.copy(0..self.len).unwrap_or_else(|| MutableBuffer::new(0).into()),
        }
    }

    /// A copy of a range; `None` when it goes beyond the end.
    pub fn copy(&self, range: Range<usize>) -> Option<Buffer> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let mut buffer = MutableBuffer::with_capacity(range.len());
        self.append_to(range, &mut buffer)?;
        Some(buffer.into())
    }

    /// Appends a range to a buffer; `None` when it goes beyond the end.
    pub fn append_to(&self, range: Range<usize>, buffer: &mut MutableBuffer) -> Option<()> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let mut begin = 0;
        for piece in &self.pieces {
            let end = begin + piece.len();
            let (from, to) = (range.start.max(begin), range.end.min(end));
            if from < to {
                buffer.extend_from_slice(&piece[from - begin..to - begin]);
            }
            begin = end;
        }
        Some(())
    }
}

impl Buf for Rope {
    fn remaining(&self) -> usize {
        self.len
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&[], |piece| piece)
    }

    fn advance(&mut self, bytes: usize) {
        // Taking drops what was taken; going beyond the end takes nothing, as for an empty rope.
        self.split_to(bytes);
    }
}
