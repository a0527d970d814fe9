//! Compares rows with their checksums.

use std::mem;
use std::sync::Arc;

use stoker_batch::SlotMut;
use stoker_checksum::checksum;

use crate::coalesce::{Piece, Read};
use crate::row_cursor::RowCursor;
use crate::{Error, IoStats, Result};

/// The maximum number of bytes that are read at once if rows are verified, unless a single row is longer: they are still
/// in a core's cache then, when their checksums are computed.
pub(crate) const CHECKED_BYTES: usize = 256 << 10;

/// A row that is damaged in storage: its bytes did not match its checksum in two reads.
#[derive(Debug)]
pub struct BadRow {
    /// The row's address.
    pub address: u64,
    /// The column, the two checksums and the data file.
    pub reason: String,
    /// The slots that want the row, of one row each. They are not filled, and their content is arbitrary: the caller may
    /// fill them with another row.
    pub slots: Vec<SlotMut>,
}

impl BadRow {
    /// Describes a piece of one row whose checksum should be `expected`.
    pub(crate) fn new(piece: Piece, expected: u32, column: &str, place: &str) -> Self {
        let reason = mismatch(column, checksum(&piece.slot), expected, place);
        let slots = std::iter::once(piece.slot).chain(piece.copies).collect();
        Self { address: piece.address, reason, slots }
    }

    /// Returns the error for a row that is not replaced.
    pub fn into_error(self, column: &str) -> Error {
        Error::BadRow { address: self.address, column: column.to_string(), reason: self.reason }
    }
}

/// Describes a row that does not match its checksum.
pub(crate) fn mismatch(column: &str, found: u32, expected: u32, place: &str) -> String {
    format!("the checksum of column {column} is {found:#010x} and not {expected:#010x}, in {place}")
}

/// Returns the addresses of the rows of reads.
pub(crate) fn addresses(reads: &[Read]) -> Vec<u64> {
    let mut addresses = Vec::with_capacity(reads.iter().map(Read::num_rows).sum());
    for piece in reads.iter().flat_map(|read| &read.pieces) {
        addresses.extend(piece.address..piece.address + piece.slot.num_rows() as u64);
    }
    addresses
}

/// Sets the expected checksums of the rows of reads: one for each of [`addresses`], or none at all.
///
/// # Errors
/// [`Error::Internal`] for another number of checksums: some rows would not be verified.
pub(crate) fn expect(reads: &mut [Read], checksums: Vec<Option<u32>>) -> Result<()> {
    let (num_checksums, num_rows) = (checksums.len(), reads.iter().map(Read::num_rows).sum::<usize>());
    if num_checksums != num_rows && num_checksums > 0 {
        return Err(Error::Internal { reason: format!("{num_checksums} checksums are for {num_rows} rows") });
    }
    let all = Some(checksums).filter(|checksums| !checksums.is_empty()).map(Arc::new);
    let mut first = 0;
    for read in reads {
        read.checks.expect(Expected { all: all.clone(), first });
        first += read.num_rows();
    }
    Ok(())
}

/// The checksums that the rows of a read have in their file. Reads share the memory of checksums that were loaded
/// together.
#[derive(Clone, Debug, Default)]
struct Expected {
    /// `None` if no checksum is known.
    all: Option<Arc<Vec<Option<u32>>>>,
    /// The index in `all` of the checksum of the first row of the read.
    first: usize,
}

impl Expected {
    /// Returns the checksum of a row, by the row's index in the read, if it is known.
    fn of(&self, index: usize) -> Option<u32> {
        self.all.as_ref()?.get(self.first + index).copied().flatten()
    }
}

/// A row that does not match its checksum.
#[derive(Clone, Copy, Debug)]
struct WrongRow {
    row: RowCursor,
    expected: u32,
}

/// How far the rows of a read were compared with their checksums.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    expected: Expected,
    /// The checksums of the bytes of the first rows, as far as they were computed when the bytes arrived.
    found: Vec<u32>,
    /// The first row that was not compared.
    next: RowCursor,
    /// Those of the compared rows that do not match.
    wrong: Vec<WrongRow>,
    /// The number of bytes of the compared rows that have a checksum.
    verified_bytes: u64,
}

impl Checks {
    /// Sets the expected checksums. All rows must be compared afterwards.
    fn expect(&mut self, expected: Expected) {
        *self = Self { expected, found: mem::take(&mut self.found), ..Self::default() };
    }

    /// Adds the checksums of the bytes of rows that follow those whose checksums were found before.
    pub fn find(&mut self, rows: &[u8], row_bytes: usize) {
        self.found.extend(rows.chunks_exact(row_bytes).map(checksum));
    }

    /// Prepares for rows that are read again from the first one on.
    pub fn restart(&mut self) {
        self.found.clear();
        self.expect(self.expected.clone());
    }

    /// Compares the rows that end at or before offset `end` of the read, except those that were compared before.
    fn compare(&mut self, pieces: &[Piece], end: u64) {
        let Self { expected, found, next, wrong, verified_bytes } = self;
        if expected.all.is_none() {
            return;
        }
        next.advance(pieces, end, |first, rows, row_bytes| {
            for (place, bytes) in rows.chunks_exact(row_bytes).enumerate() {
                let row = RowCursor { row: first.row + place, index: first.index + place, ..first };
                let Some(expected) = expected.of(row.index) else { continue };
                *verified_bytes += bytes.len() as u64;
                if found.get(row.index).copied().unwrap_or_else(|| checksum(bytes)) != expected {
                    wrong.push(WrongRow { row, expected });
                }
            }
        });
    }
}

impl Read {
    /// Returns whether any row has a checksum.
    pub fn is_checked(&self) -> bool {
        let Expected { all, first } = &self.checks.expected;
        let checksums = all.iter().flat_map(|all| all.iter().skip(*first));
        checksums.take(self.num_rows()).any(Option::is_some)
    }

    /// Returns the expected checksum of the first row, if it is known.
    pub fn first_checksum(&self) -> Option<u32> {
        self.checks.expected.of(0)
    }

    /// Compares the rows that end at or before offset `end` of the read with their checksums, except those that were
    /// compared before. Rows without a known checksum are not compared.
    pub fn check(&mut self, end: u64) {
        self.checks.compare(&self.pieces, end);
    }

    /// Removes the rows that do not match their checksums, and returns each as a read of its own.
    ///
    /// # Errors
    /// [`Error::Internal`] if the slots of a run cannot be split.
    pub fn take_suspects(&mut self, stats: &IoStats) -> Result<Vec<Read>> {
        self.check(u64::MAX);
        stats.add_verified(self.checks.verified_bytes);
        let wrong = mem::take(&mut self.checks).wrong;
        if wrong.is_empty() {
            return Ok(Vec::new());
        }
        let (mut suspects, mut wrong) = (Vec::with_capacity(wrong.len()), wrong.into_iter().peekable());
        for (index, piece) in mem::take(&mut self.pieces).into_iter().enumerate() {
            // The rest of the piece, and the index of its first row in the piece.
            let (mut rest, mut first) = (Some(piece), 0);
            while let Some(WrongRow { row, expected }) = wrong.next_if(|wrong| wrong.row.piece == index) {
                let (right, others) = split(rest, row.row - first)?;
                let (suspect, others) = split(others, 1)?;
                (rest, first) = (others, row.row + 1);
                self.pieces.extend(right);
                suspects.extend(suspect.map(|piece| self.alone(piece, expected)).transpose()?);
            }
            self.pieces.extend(rest);
        }
        Ok(suspects)
    }

    /// Makes a read of a piece of one row.
    fn alone(&self, piece: Piece, expected: u32) -> Result<Read> {
        let (offset, length) = (self.offset + piece.at, piece.slot.len() as u64);
        let mut read = Read::new(self.fragment, offset, length, vec![Piece { at: 0, ..piece }]);
        expect(std::slice::from_mut(&mut read), vec![Some(expected)])?;
        Ok(read)
    }

    /// Returns the number of rows that were compared and match.
    #[cfg(test)]
    pub fn num_right(&self) -> usize {
        self.checks.next.index - self.checks.wrong.len()
    }

    /// Returns the checksums that were found when the rows arrived.
    #[cfg(test)]
    pub fn found(&self) -> &[u32] {
        &self.checks.found
    }
}

/// Splits a piece after `num_rows` rows. A part without rows is `None`.
fn split(piece: Option<Piece>, num_rows: usize) -> Result<(Option<Piece>, Option<Piece>)> {
    match piece {
        Some(piece) if num_rows == 0 => Ok((None, Some(piece))),
        Some(mut piece) if num_rows < piece.slot.num_rows() => {
            let rest = piece.split_off(num_rows)?;
            Ok((Some(piece), Some(rest)))
        }
        piece => Ok((piece, None)),
    }
}
