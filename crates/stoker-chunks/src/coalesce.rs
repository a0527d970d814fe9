//! Combines rows into reads.

use stoker_batch::SlotMut;
use stoker_lake::DenseColumn;

use crate::Result;
use crate::runs::{RowRun, divide};
use crate::verify::Checks;

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
    /// Returns the length of a read of `length` bytes, of which `used_bytes` are wanted, after it is extended across a
    /// gap by `more_bytes` of wanted rows; `None` if these rows should be read by another read.
    pub fn joined(&self, length: u64, used_bytes: u64, gap: u64, more_bytes: u64) -> Option<u64> {
        let used = used_bytes + more_bytes;
        let length = length.saturating_add(gap).saturating_add(more_bytes);
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
    /// The comparison of the rows with their checksums.
    pub checks: Checks,
}

/// A run of rows of a read: their addresses are consecutive, and their bytes are contiguous in the file.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The offset of the first row in the read.
    pub at: u64,
    /// The address of the first row.
    pub address: u64,
    /// The slots of all rows of the run.
    pub slot: SlotMut,
    /// More slots that want the same rows: each has as many rows as `slot`.
    pub copies: Vec<SlotMut>,
}

impl Piece {
    /// Makes a run of rows for one slot each.
    pub fn new(address: u64, at: u64, slot: SlotMut) -> Self {
        Self { at, address, slot, copies: Vec::new() }
    }

    /// The offset in the read of the end of the last row.
    pub fn end(&self) -> u64 {
        self.at.saturating_add(self.slot.len() as u64)
    }

    /// Keeps the first `num_rows` rows, and returns the others.
    ///
    /// # Errors
    /// As for [`SlotMut::split_off`].
    pub fn split_off(&mut self, num_rows: usize) -> Result<Self> {
        let slot = self.slot.split_off(num_rows)?;
        let copies = self.copies.iter_mut().map(|copy| copy.split_off(num_rows)).collect::<Result<_, _>>()?;
        Ok(Self { at: self.end(), address: self.address + num_rows as u64, slot, copies })
    }
}

impl Read {
    /// Makes a read whose rows have no known checksums.
    pub fn new(fragment: u32, offset: u64, length: u64, pieces: Vec<Piece>) -> Self {
        Self { fragment, offset, length, pieces, checks: Checks::default() }
    }

    /// Returns the number of wanted rows.
    pub fn num_rows(&self) -> usize {
        self.pieces.iter().map(|piece| piece.slot.num_rows()).sum()
    }

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

/// Combines reads whose ranges are adjacent, or nearly so. The checksums of their rows are not known any more.
pub(crate) fn merged(mut reads: Vec<Read>, limits: Limits) -> Vec<Read> {
    reads.sort_unstable_by_key(|read| (read.fragment, read.offset));
    let mut merged: Vec<Read> = Vec::new();
    let mut used_bytes = 0;
    for read in reads {
        let more_bytes = read.used_bytes();
        if let Some(last) = merged.last_mut().filter(|last| last.fragment == read.fragment)
            && let Some(gap) = read.offset.checked_sub(last.offset + last.length)
            && let Some(length) = limits.joined(last.length, used_bytes, gap, more_bytes)
        {
            let shift = read.offset - last.offset;
            last.pieces.extend(read.pieces.into_iter().map(|piece| Piece { at: piece.at + shift, ..piece }));
            last.length = length;
            used_bytes += more_bytes;
            continue;
        }
        used_bytes = more_bytes;
        merged.push(Read::new(read.fragment, read.offset, read.length, read.pieces));
    }
    merged
}

/// Sorts runs of rows by address and combines neighbours into reads.
///
/// # Errors
/// As for [`divide`].
pub(crate) fn coalesce(name: &str, column: &DenseColumn, runs: Vec<RowRun>, limits: Limits) -> Result<Vec<Read>> {
    let mut reads: Vec<Read> = Vec::new();
    let mut used_bytes = 0;
    divide(name, column, runs, limits.read_bytes_max, |mut piece| {
        let (fragment, offset, more_bytes) = ((piece.address >> 32) as u32, piece.at, piece.slot.len() as u64);
        if let Some(read) = reads.last_mut().filter(|read| read.fragment == fragment)
            && let Some(gap) = offset.checked_sub(read.offset.saturating_add(read.length))
            && let Some(length) = limits.joined(read.length, used_bytes, gap, more_bytes)
        {
            piece.at = offset - read.offset;
            read.pieces.push(piece);
            read.length = length;
            used_bytes += more_bytes;
            return;
        }
        piece.at = 0;
        used_bytes = more_bytes;
        reads.push(Read::new(fragment, offset, more_bytes, vec![piece]));
    })?;
    Ok(reads)
}
