//! Combines rows into reads.

use stoker_batch::SlotMut;
use stoker_lake::DenseColumn;

use crate::Result;
use crate::locator::Locator;

/// The limits by which rows are combined into reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum gap between two rows of one read; a larger gap splits the read. In bytes.
    pub gap_bytes_max: u64,
    /// A gap of at most this many bytes never splits a read as waste.
    pub free_gap_bytes: u64,
    /// If a gap is larger, all unwanted bytes of the read together are at most its wanted bytes divided by this number.
    pub waste_divisor: u64,
    /// The maximum size of one read in bytes, unless a single row is larger.
    pub read_bytes_max: u64,
}

impl Limits {
    /// Returns the length of a read of `length` bytes with `num_rows` rows after it is extended across a gap by one
    /// more row; `None` if that row should be read by another read.
    pub fn joined(&self, length: u64, num_rows: u64, gap: u64, row_bytes: u64) -> Option<u64> {
        let used = (num_rows + 1) * row_bytes;
        let length = length.saturating_add(gap).saturating_add(row_bytes);
        let is_wasteful = gap > self.free_gap_bytes && (length - used).saturating_mul(self.waste_divisor) > used;
        (gap <= self.gap_bytes_max && !is_wasteful && length <= self.read_bytes_max).then_some(length)
    }
}

/// One contiguous range of a file, and the slots of the rows in it.
#[derive(Debug)]
pub(crate) struct Read {
    pub fragment: u32,
    pub offset: u64,
    pub length: u64,
    /// The wanted rows, in ascending order and without overlaps.
    pub pieces: Vec<Piece>,
}

/// One row of a read.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The offset of the row in the read.
    pub at: u64,
    pub address: u64,
    pub slot: SlotMut,
    /// More slots that want the same row.
    pub copies: Vec<SlotMut>,
    /// The row's checksum in its file, if it is known.
    pub checksum: Option<u32>,
    /// The checksum of the bytes in the slot, if it was computed when they arrived.
    pub found: Option<u32>,
    /// Whether the bytes in the slot were found to match `checksum`.
    pub is_right: bool,
}

impl Piece {
    /// Makes a row for one slot, without a checksum.
    pub fn new(address: u64, at: u64, slot: SlotMut) -> Self {
        Self { at, address, slot, copies: Vec::new(), checksum: None, found: None, is_right: false }
    }
}

impl Read {
    /// Returns the number of bytes of wanted rows.
    pub fn used_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.slot.len() as u64).sum()
    }

    /// Copies rows that several slots want, and marks all slots as filled.
    pub fn finish(self) {
        for piece in self.pieces {
            for mut copy in piece.copies {
                copy.copy_from_slice(&piece.slot);
                copy.fill();
            }
            piece.slot.fill();
        }
    }
}

/// Combines reads whose ranges are adjacent, or nearly so.
pub(crate) fn merged(mut reads: Vec<Read>, limits: Limits) -> Vec<Read> {
    reads.sort_unstable_by_key(|read| (read.fragment, read.offset));
    let mut merged: Vec<Read> = Vec::new();
    for read in reads {
        if let Some(last) = merged.last_mut().filter(|last| last.fragment == read.fragment)
            && let Some(gap) = read.offset.checked_sub(last.offset + last.length)
            && let Some(length) = limits.joined(last.length, last.pieces.len() as u64, gap, read.length)
        {
            let shift = read.offset - last.offset;
            last.pieces.extend(read.pieces.into_iter().map(|piece| Piece { at: piece.at + shift, ..piece }));
            last.length = length;
            continue;
        }
        merged.push(read);
    }
    merged
}

/// Sorts rows by address and combines neighbours into reads.
pub(crate) fn coalesce(
    name: &str,
    column: &DenseColumn,
    mut rows: Vec<(u64, SlotMut)>,
    limits: Limits,
) -> Result<Vec<Read>> {
    rows.sort_unstable_by_key(|(address, _)| *address);
    let row_bytes = column.row_bytes as u64;
    let mut reads: Vec<Read> = Vec::new();
    let mut last = None;
    let mut locator = Locator::new(name, column);
    for (address, slot) in rows {
        if last == Some(address)
            && let Some(piece) = reads.last_mut().and_then(|read| read.pieces.last_mut())
        {
            piece.copies.push(slot);
            continue;
        }
        last = Some(address);
        let fragment = (address >> 32) as u32;
        let offset = locator.locate(address)?;
        if let Some(read) = reads
            .last_mut()
            .filter(|read| read.fragment == fragment && offset >= read.offset.saturating_add(read.length))
        {
            let gap = offset - (read.offset + read.length);
            if let Some(length) = limits.joined(read.length, read.pieces.len() as u64, gap, row_bytes) {
                read.pieces.push(Piece::new(address, offset - read.offset, slot));
                read.length = length;
                continue;
            }
        }
        reads.push(Read { fragment, offset, length: row_bytes, pieces: vec![Piece::new(address, 0, slot)] });
    }
    Ok(reads)
}
