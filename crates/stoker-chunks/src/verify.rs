//! Compares rows with their checksums.

use stoker_batch::SlotMut;
use stoker_checksum::checksum;

use crate::coalesce::{Piece, Read};
use crate::{Error, IoStats};

/// A row that is damaged in storage: its bytes did not match its checksum in two reads.
#[derive(Debug)]
pub struct BadRow {
    /// The row's address.
    pub address: u64,
    /// The column, the two checksums and the data file.
    pub reason: String,
    /// The slots that want the row. They are not filled, and their content is arbitrary: the caller may fill them with
    /// another row.
    pub slots: Vec<SlotMut>,
}

impl BadRow {
    pub(crate) fn new(piece: Piece, column: &str, place: &str) -> Self {
        let (found, expected) = (checksum(&piece.slot), piece.checksum.unwrap_or_default());
        let reason = mismatch(column, found, expected, place);
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
    reads.iter().flat_map(|read| &read.pieces).map(|piece| piece.address).collect()
}

/// Sets the expected checksums of the rows of reads: one for each of [`addresses`], or none at all.
pub(crate) fn expect(reads: &mut [Read], checksums: Vec<Option<u32>>) {
    for (piece, checksum) in reads.iter_mut().flat_map(|read| &mut read.pieces).zip(checksums) {
        piece.checksum = checksum;
        piece.is_right = false;
    }
}

impl Piece {
    /// Computes the checksum of the bytes in the slot.
    pub fn find_checksum(&mut self) {
        self.found = Some(checksum(&self.slot));
    }

    /// Compares the bytes in the slot with the expected checksum, if there is one.
    pub fn check(&mut self) {
        let found = self.found.take();
        self.is_right = self.checksum.is_some_and(|expected| found.unwrap_or_else(|| checksum(&self.slot)) == expected);
    }
}

impl Read {
    /// Returns whether any row has a checksum.
    pub fn is_checked(&self) -> bool {
        self.pieces.iter().any(|piece| piece.checksum.is_some())
    }

    /// Removes the rows that do not match their checksums, and returns each as a read of its own.
    pub fn take_suspects(&mut self, stats: &IoStats) -> Vec<Read> {
        let (fragment, offset) = (self.fragment, self.offset);
        let mut verified_bytes = 0;
        let is_suspect = |piece: &mut Piece| {
            if piece.checksum.is_none() {
                return false;
            }
            if !piece.is_right {
                piece.check();
            }
            verified_bytes += piece.slot.len() as u64;
            !piece.is_right
        };
        let alone = |piece: Piece| {
            let (offset, length) = (offset + piece.at, piece.slot.len() as u64);
            Read { fragment, offset, length, pieces: vec![Piece { at: 0, ..piece }] }
        };
        let suspects = self.pieces.extract_if(.., is_suspect).map(alone).collect();
        stats.add_verified(verified_bytes);
        suspects
    }
}
