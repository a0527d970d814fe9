//! The index of a page's chunks.

use std::ops::Range;

use crate::error::Result;
use crate::{BadPage, ListPage, little_endian};

/// The unit of the lengths of chunks, in bytes.
const UNIT: u64 = 8;

/// The most numbers in a chunk that Lance writes or reads.
const ITEMS_MAX: u64 = 1 << 15;

/// Where the chunks of a page lie, and which rows begin in them. Takes nine bytes for each chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListChunks {
    /// The offset of the page's chunks in the file.
    offset: u64,
    /// The offset of each chunk from `offset`, and the end of the last one.
    byte_starts: Box<[u32]>,
    /// The number of rows that begin before each chunk, and the number of all rows.
    row_starts: Box<[u32]>,
    /// For each chunk, the binary logarithm of its numbers, plus [`CONTINUES`] if its last row continues in the next chunk.
    marks: Box<[u8]>,
    /// The number of numbers in the last chunk.
    last_items: u32,
}

/// The number of chunks that are looked at one by one before a search.
const NEAR_CHUNKS: usize = 8;

/// Marks a chunk whose last row continues.
const CONTINUES: u8 = 0x80;

impl ListChunks {
    pub(crate) fn parse(page: &ListPage, sizes: &[u8], row_counts: &[u8]) -> Result<Self> {
        let word = if page.has_large_chunks { 4 } else { 2 };
        let num_chunks = sizes.len() / word;
        if num_chunks == 0 || !sizes.len().is_multiple_of(word) || row_counts.len() != num_chunks.saturating_mul(16) {
            let (sizes, counts) = (sizes.len(), row_counts.len());
            return Err(BadPage::new(format!("{sizes} bytes of chunk sizes do not fit {counts} bytes of row counts")));
        }
        let data = page.data_range();
        let mut byte_starts = Vec::with_capacity(num_chunks + 1);
        let mut row_starts = Vec::with_capacity(num_chunks + 1);
        let mut marks = Vec::with_capacity(num_chunks);
        let (mut bytes, mut rows, mut items, mut continued) = (0u64, 0u64, 0u64, false);
        for (number, (size, counts)) in sizes.chunks_exact(word).zip(row_counts.chunks_exact(16)).enumerate() {
            byte_starts.push(narrow(bytes)?);
            row_starts.push(narrow(rows)?);
            let size = little_endian(size);
            bytes = bytes.saturating_add((size >> 4).saturating_add(1).saturating_mul(UNIT));
            let is_last = number + 1 == num_chunks;
            let log = u8::try_from(size & 0xf).unwrap_or_default();
            if !is_last {
                items = items.saturating_add(1 << log);
            }
            let (ended, left) = counts.split_at(8);
            let continues = left.iter().any(|byte| *byte != 0);
            let begun = little_endian(ended).checked_add(u64::from(continues));
            let begun = begun.and_then(|begun| begun.checked_sub(u64::from(continued)));
            rows = begun.and_then(|begun| begun.checked_add(rows)).ok_or_else(|| {
                BadPage::new(format!("in chunk {number}, {} rows end, and one begins earlier", little_endian(ended)))
            })?;
            continued = continues;
            marks.push(log | if continues { CONTINUES } else { 0 });
        }
        byte_starts.push(narrow(bytes)?);
        row_starts.push(narrow(rows)?);
        if bytes != data.end - data.start {
            let length = data.end - data.start;
            return Err(BadPage::new(format!("{num_chunks} chunks have {bytes} bytes, and the page has {length}")));
        }
        if rows != page.num_rows || continued {
            return Err(BadPage::new(format!("{rows} rows begin in chunks of a page of {} rows", page.num_rows)));
        }
        // The last chunk may have rows without numbers only.
        let last_items = page.num_items.checked_sub(items).filter(|items| *items <= ITEMS_MAX);
        let last_items = last_items.and_then(|items| u32::try_from(items).ok()).ok_or_else(|| {
            BadPage::new(format!(
                "{} numbers do not fit {num_chunks} chunks, of which all but one have {items}",
                page.num_items
            ))
        })?;
        Ok(Self {
            offset: data.start,
            byte_starts: byte_starts.into(),
            row_starts: row_starts.into(),
            marks: marks.into(),
            last_items,
        })
    }

    /// Returns the chunks that hold a row of the page.
    pub fn chunks_of(&self, row: u64) -> Range<usize> {
        self.chunks_from(0, row)
    }

    /// Returns the chunks that hold a row of the page, which begins in the chunk `from` or in a later one. That is faster
    /// if it begins in one of the next chunks.
    pub fn chunks_from(&self, from: usize, row: u64) -> Range<usize> {
        let num_chunks = self.marks.len();
        let starts = self.row_starts.get(from..num_chunks).unwrap_or_default();
        let is_before = |start: &u32| u64::from(*start) <= row;
        let near = starts.iter().take(NEAR_CHUNKS).take_while(|start| is_before(start)).count();
        let count = if near < NEAR_CHUNKS { near } else { starts.partition_point(is_before) };
        let first = (from + count).saturating_sub(1);
        let mut end = first + 1;
        if row.saturating_add(1) == self.rows_before(end) {
            while end < num_chunks && self.continues(end - 1) {
                end += 1;
                if self.rows_before(end) > self.rows_before(end - 1) {
                    break;
                }
            }
        }
        first..end
    }

    /// Returns the range of the file that holds successive chunks.
    pub fn byte_range(&self, chunks: Range<usize>) -> Range<u64> {
        let at = |chunk: usize| self.offset + self.byte_starts.get(chunk).copied().map_or(0, u64::from);
        at(chunks.start)..at(chunks.end)
    }

    /// Returns the bytes of memory that the index takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.byte_starts) + size_of_val(&*self.row_starts) + self.marks.len()
    }

    /// Returns the number of rows that begin before a chunk.
    pub(crate) fn rows_before(&self, chunk: usize) -> u64 {
        self.row_starts.get(chunk).copied().map_or(0, u64::from)
    }

    /// Returns whether the last row of a chunk continues in the next one.
    pub(crate) fn continues(&self, chunk: usize) -> bool {
        self.marks.get(chunk).is_some_and(|mark| mark & CONTINUES != 0)
    }

    /// Returns the number of numbers in a chunk.
    pub(crate) fn num_items(&self, chunk: usize) -> u64 {
        match self.marks.get(chunk) {
            Some(mark) if chunk + 1 < self.marks.len() => 1 << (mark & !CONTINUES),
            _ => u64::from(self.last_items),
        }
    }
}

fn narrow(number: u64) -> Result<u32> {
    u32::try_from(number).map_err(|_| BadPage::new(format!("the chunks of a page have {number} bytes or rows")))
}
