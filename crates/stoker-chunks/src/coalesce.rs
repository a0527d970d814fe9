//! From rows to reads.

use stoker_lake::DenseColumn;

use crate::locator::Locator;
use crate::{Result, SlotMut};

/// How rows become reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Unwanted bytes between two rows that are read along rather than splitting the read.
    pub gap_bytes_max: u64,
    /// Gaps of at most so many bytes are read along however many they are.
    pub free_gap_bytes: u64,
    /// With a larger gap, unwanted bytes of a read are at most its wanted bytes divided by this.
    pub waste_divisor: u64,
    /// Bytes of one read at most, unless a single row is larger.
    pub read_bytes_max: u64,
}

impl Limits {
    /// The length of a read of `length` bytes with `num_rows` rows that also reads a row behind a gap; `None` when that row is
    /// better read by another read.
    pub fn joined(&self, length: u64, num_rows: u64, gap: u64, row_bytes: u64) -> Option<u64> {
        let used = (num_rows + 1) * row_bytes;
        let length = length.saturating_add(gap).saturating_add(row_bytes);
        let is_wasteful = gap > self.free_gap_bytes && (length - used).saturating_mul(self.waste_divisor) > used;
        (gap <= self.gap_bytes_max && !is_wasteful && length <= self.read_bytes_max).then_some(length)
    }
}

/// One contiguous range of one file, and where its rows go.
#[derive(Debug)]
pub(crate) struct Read {
    pub fragment: u32,
    pub offset: u64,
    pub length: u64,
    /// Ascending, not overlapping.
    pub pieces: Vec<Piece>,
}

/// One row of a read.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Where the row begins, counted from the start of the read.
    pub at: u64,
    pub address: u64,
    pub slot: SlotMut,
    /// More slots that want the same row.
    pub copies: Vec<SlotMut>,
    /// The checksum that the row should have, where it is known.
    pub checksum: Option<u32>,
    /// The checksum of the bytes in the slot, where it was found when they came.
    pub found: Option<u32>,
    /// Whether the bytes in the slot were found to have it.
    pub is_right: bool,
}

impl Piece {
    /// A row that one slot wants, without a checksum.
    pub fn new(address: u64, at: u64, slot: SlotMut) -> Self {
        Self { at, address, slot, copies: Vec::new(), checksum: None, found: None, is_right: false }
    }
}

impl Read {
    /// Bytes of wanted rows.
    pub fn used_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.slot.len() as u64).sum()
    }

    /// Copies rows that several slots want, and declares everything filled.
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

/// Makes one read of those whose rows lie side by side, or nearly so.
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

/// Sorts rows by address and merges neighbours.
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
