//! Takes a chunk apart.

use std::ops::Range;

use bytes::Bytes;
use lance_encoding::buffer::LanceBuffer;

use crate::error::Result;
use crate::{BadPage, ListPage, little_endian};

/// The alignment of the parts of a chunk.
const ALIGNMENT: usize = 8;

/// The most buffers of numbers in a chunk. Pages with more are left to Lance.
pub(crate) const NUMBER_BUFFERS_MAX: usize = 8;

/// The bytes of a chunk, among bytes that were read together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkBytes<'a> {
    read: &'a Bytes,
    start: usize,
    length: usize,
}

impl<'a> ChunkBytes<'a> {
    /// Returns the chunk at a range of the bytes, or `None` if they are fewer.
    pub fn new(read: &'a Bytes, range: Range<usize>) -> Option<Self> {
        read.get(range.clone()).map(|chunk| Self { read, start: range.start, length: chunk.len() })
    }

    pub fn all(self) -> &'a [u8] {
        self.part(0..self.length)
    }

    /// Returns a part of the chunk, which must lie in it.
    pub fn part(self, range: Range<usize>) -> &'a [u8] {
        self.read.get(self.start + range.start..self.start + range.end).unwrap_or_default()
    }

    /// Returns a part as bytes of its own, which share the memory.
    pub fn shared(self, range: Range<usize>) -> Bytes {
        self.read.slice(self.start + range.start..self.start + range.end)
    }
}

/// Where the parts of a chunk lie in its bytes.
#[derive(Debug)]
pub(crate) struct ChunkParts {
    /// The number of levels that the chunk says it has.
    pub num_levels: u64,
    pub rep: Range<usize>,
    pub def: Option<Range<usize>>,
    numbers: [Range<usize>; NUMBER_BUFFERS_MAX],
    num_buffers: usize,
}

impl ChunkParts {
    pub fn parse(page: &ListPage, chunk: &[u8]) -> Result<Self> {
        let mut header = Header { chunk, at: 0 };
        let num_levels = header.number(2)?;
        let rep = header.number(2)?;
        let def = page.levels.def.as_ref().map(|_| header.number(2)).transpose()?;
        let width = if page.has_large_chunks { 4 } else { 2 };
        let num_buffers = page.num_buffers.min(NUMBER_BUFFERS_MAX);
        let mut lengths = [0; NUMBER_BUFFERS_MAX];
        for length in lengths.iter_mut().take(num_buffers) {
            *length = header.number(width)?;
        }
        header.align();
        let rep = header.part(rep)?;
        let def = def.map(|bytes| header.part(bytes)).transpose()?;
        let mut numbers = [const { 0..0 }; NUMBER_BUFFERS_MAX];
        for (numbers, length) in numbers.iter_mut().zip(lengths).take(num_buffers) {
            *numbers = header.part(length)?;
        }
        Ok(Self { num_levels, rep, def, numbers, num_buffers })
    }

    /// The compressed numbers.
    pub fn numbers(&self) -> &[Range<usize>] {
        self.numbers.get(..self.num_buffers).unwrap_or_default()
    }
}

/// Returns bytes as the buffer that Lance's functions take. Parts of chunks are aligned unless the chunk is not.
pub(crate) fn lance_buffer(bytes: Bytes) -> LanceBuffer {
    LanceBuffer::from_bytes(bytes, ALIGNMENT as u64)
}

/// The parts of a chunk that were not read yet.
struct Header<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl Header<'_> {
    fn number(&mut self, width: usize) -> Result<u64> {
        let bytes = self.chunk.get(self.at..self.at + width).ok_or_else(|| self.short())?;
        self.at += width;
        Ok(little_endian(bytes))
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(ALIGNMENT);
    }

    fn part(&mut self, bytes: u64) -> Result<Range<usize>> {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes));
        let end = end.filter(|end| *end <= self.chunk.len()).ok_or_else(|| self.short())?;
        let part = self.at..end;
        self.at = end;
        self.align();
        Ok(part)
    }

    fn short(&self) -> BadPage {
        BadPage::new(format!("a chunk of {} bytes has parts beyond its end", self.chunk.len()))
    }
}
