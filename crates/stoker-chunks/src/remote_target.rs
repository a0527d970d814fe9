//! Memory that the bodies of GETs fill: the slots of rows, or a buffer.

use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};

use stoker_types::to_usize;

use crate::coalesce::Read;
use crate::row_cursor::RowCursor;
use crate::verify::CHECKED_BYTES;

/// The maximum number of slices that one read from a body fills.
const SLICES_MAX: usize = 128;

/// The maximum number of unwanted bytes that one read from a body skips.
const SKIPPED_MAX: usize = 64 << 10;

/// Memory for exactly the bytes of a range.
pub(crate) trait Room: Send {
    /// Returns the memory for the next bytes: at least one slice.
    fn slices(&mut self) -> Vec<IoSliceMut<'_>>;

    /// Records that `count` bytes were written to the slices.
    fn filled(&mut self, count: usize);
}

/// The unfilled rest of a buffer.
pub(crate) struct Rest<'a> {
    pub bytes: &'a mut [u8],
}

impl Room for Rest<'_> {
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        vec![IoSliceMut::new(self.bytes)]
    }

    fn filled(&mut self, count: usize) {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = bytes.split_at_mut(count).1;
    }
}

/// The slots of a read, and a counter of how far they are filled.
pub(crate) struct Watched<'a, 'b> {
    pub target: &'a mut Target<'b>,
    /// The offset of the read in its file.
    pub start: u64,
    /// The offset in the file up to which bytes arrived.
    pub at: &'a AtomicU64,
}

impl Room for Watched<'_, '_> {
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        self.target.slices()
    }

    fn filled(&mut self, count: usize) {
        self.target.filled(count as u64);
        self.at.store(self.start + self.target.done, Ordering::Relaxed);
    }
}

/// The slots of a read, which are filled from the start of the read to its end.
pub(crate) struct Target<'a> {
    pub read: &'a mut Read,
    /// The number of bytes that arrived.
    pub done: u64,
    /// The first row that is not full.
    next: RowCursor,
    /// Whether the checksums of rows are computed.
    hashes: bool,
    /// Memory for unwanted bytes; empty until the first gap.
    skipped: Vec<u8>,
}

impl<'a> Target<'a> {
    /// Makes the target of a read of which no byte arrived.
    pub fn new(read: &'a mut Read, hashes: bool) -> Self {
        Self { read, done: 0, next: RowCursor::default(), hashes, skipped: Vec::new() }
    }

    /// Returns the memory for the next bytes.
    fn slices(&mut self) -> Vec<IoSliceMut<'_>> {
        let mut at = self.done;
        let pieces = self.read.pieces.get_mut(self.next.piece..).unwrap_or_default();
        if pieces.first().is_some_and(|piece| piece.at > at) {
            self.skipped.resize(SKIPPED_MAX, 0);
        }
        let mut slices = Vec::with_capacity(pieces.len().min(SLICES_MAX));
        let mut room = if self.hashes { CHECKED_BYTES } else { usize::MAX };
        for piece in pieces.iter_mut().take(SLICES_MAX) {
            if piece.at > at {
                // A gap is only the first slice of a call, so that slices do not overlap.
                if slices.is_empty() {
                    let count = usize::try_from(piece.at - at).map_or(SKIPPED_MAX, |gap| gap.min(SKIPPED_MAX));
                    slices.push(IoSliceMut::new(&mut self.skipped[..count]));
                }
                break;
            }
            let from = to_usize(at - piece.at);
            let to = piece.slot.len().min(from.saturating_add(room));
            at = piece.end();
            slices.push(IoSliceMut::new(&mut piece.slot[from..to]));
            room -= to - from;
            if room == 0 {
                break;
            }
        }
        slices
    }

    /// Records that the next `count` bytes were written to the slices.
    fn filled(&mut self, count: u64) {
        self.done += count;
        let Read { pieces, checks, .. } = &mut *self.read;
        self.next.advance(pieces, self.done, |_, rows, row_bytes| {
            if self.hashes {
                checks.find(rows, row_bytes);
            }
        });
    }

    /// Copies into the slots those of `bytes` that are still missing. `bytes` begin at offset `at` of the read, up to
    /// which no byte is missing.
    pub fn put_missing(&mut self, at: u64, bytes: &[u8]) {
        let known = to_usize(self.done.saturating_sub(at));
        let mut missing = bytes.get(known..).unwrap_or_default();
        while !missing.is_empty() {
            let mut count = 0;
            for mut slice in self.slices() {
                let length = slice.len().min(missing.len() - count);
                slice[..length].copy_from_slice(&missing[count..count + length]);
                count += length;
            }
            if count == 0 {
                return;
            }
            missing = &missing[count..];
            self.filled(count as u64);
        }
    }
}
