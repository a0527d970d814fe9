//! Reads local files through the page cache: the kernel scatters a range over the slots of its rows.

use std::fs::File;
use std::io::{self, IoSliceMut};

use stoker_types::to_usize;

#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::io::Errno;
use stoker_lake::preadv_cached;

use crate::coalesce::{Limits, Piece, Read};
use crate::row_cursor::RowCursor;
use crate::verify::CHECKED_BYTES;

/// The largest page size of operating systems, in bytes.
#[cfg(target_os = "linux")]
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of slices per system call; Linux allows 1,024.
const SLICES_MAX: usize = 1_000;

/// The limits by which rows in the page cache are read by one system call, which costs about as much as copying 8 KiB.
pub(crate) const NEAR: Limits =
    Limits { gap_bytes_max: 8 << 10, free_gap_bytes: 0, waste_divisor: 10, read_bytes_max: 8 << 20 };

/// The limits by which all rows of a read are read by one system call.
pub(crate) const ALL: Limits =
    Limits { gap_bytes_max: u64::MAX, free_gap_bytes: u64::MAX, waste_divisor: 1, read_bytes_max: u64::MAX };

/// Where a read may take bytes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// From the page cache or the disk, which may take long.
    Anywhere,
    /// Only from the page cache.
    Memory,
}

/// How much of a range was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The first row that is not in its slot.
    pub next: RowCursor,
    /// The number of system calls that read them.
    pub calls: u64,
    /// The number of bytes that these calls read.
    pub bytes: u64,
}

/// A range of a file that cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    pub range: Range<u64>,
    pub source: io::Error,
}

/// Reads rows of a file into their slots, with one system call for up to 500 runs of rows within the limits of `call`, and
/// verifies rows that have a checksum. Continues at `progress`. Returns before the end only if the next bytes are not in
/// memory and `from` is [`ReadFrom::Memory`].
pub(crate) fn read_local(
    file: &File,
    read: &mut Read,
    scratch: &mut Vec<u8>,
    (call, from): (Limits, ReadFrom),
    progress: &mut Progress,
) -> Result<(), Unreadable> {
    if progress.next == RowCursor::default() {
        read.checks.restart();
    }
    // A call that meets a row outside the page cache is repeated as a whole later, so it must not be long.
    let is_short = read.is_checked() || from == ReadFrom::Memory;
    let bytes_max = if is_short { CHECKED_BYTES } else { usize::MAX };
    while let Some(span) = Span::next(&read.pieces, progress.next, call, bytes_max) {
        match read_span(file, read, &span, scratch, from) {
            Ok(calls) => progress.calls += calls,
            // A read that may wait will report the error, if there is one.
            Err(_) if from == ReadFrom::Memory => return Ok(()),
            Err(source) => {
                let range = read.offset + span.range.start..read.offset + span.range.end;
                return Err(Unreadable { range, source });
            }
        }
        progress.bytes += span.range.end - span.range.start;
        read.check(span.range.end);
        progress.next.advance(&read.pieces, span.range.end, |_, _, _| {});
    }
    Ok(())
}

/// Reads rows as [`read_local`] does, but from the disk rather than from the page cache.
pub(crate) fn read_past_cache(file: &File, read: &mut Read) -> Result<Progress, Unreadable> {
    forget(file, read.offset..read.offset + read.length);
    let mut progress = Progress::default();
    read_local(file, read, &mut Vec::new(), (ALL, ReadFrom::Anywhere), &mut progress)?;
    Ok(progress)
}

/// Drops a range of a file from the page cache. Only Linux can do this, and a file system may refuse; then the next
/// read returns the same bytes again.
pub(crate) fn forget(file: &File, range: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        // Only whole pages are dropped.
        let start = range.start - range.start % PAGE_BYTES_MAX;
        let length = NonZeroU64::new(range.end.next_multiple_of(PAGE_BYTES_MAX) - start);
        let _ = rustix::fs::fadvise(file, start, length, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, range);
}

/// The most bytes that the system is asked for at once; it ignores what is beyond its own limit, which is larger.
#[cfg(target_os = "linux")]
const ASKED_BYTES_MAX: u64 = 256 << 10;

/// Asks the system to read a range of a file into the page cache, and does not wait for it. Only Linux can do this, and a
/// file system may refuse; then the read of the range waits.
pub(crate) fn will_need(file: &File, range: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        let mut start = range.start;
        while start < range.end {
            let length = (range.end - start).min(ASKED_BYTES_MAX);
            let _ = rustix::fs::fadvise(file, start, NonZeroU64::new(length), rustix::fs::Advice::WillNeed);
            start += length;
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, range);
}

/// The rows that one system call reads.
struct Span {
    /// The pieces with these rows. The first and the last one may have more rows.
    pieces: Range<usize>,
    /// The bytes of the rows in the read.
    range: Range<u64>,
    /// The number of unwanted bytes between the rows.
    gap_bytes: usize,
}

impl Span {
    /// Returns the rows from `next` on that one system call reads: at most `bytes_max` bytes, but at least one row, and
    /// rows within the limits of a call. `None` if there is no further row.
    fn next(pieces: &[Piece], next: RowCursor, call: Limits, bytes_max: usize) -> Option<Self> {
        let first = pieces.get(next.piece)?;
        let start = first.at + (next.row * first.slot.row_bytes()) as u64;
        let mut span = Self { pieces: next.piece..next.piece, range: start..start, gap_bytes: 0 };
        let mut room = bytes_max;
        for piece in pieces[next.piece..].iter().take(SLICES_MAX / 2) {
            let from = piece.at.max(start);
            let (length, row_bytes) = (to_usize(piece.end() - from), piece.slot.row_bytes().max(1));
            let fitting = if length <= room { length } else { room - room % row_bytes };
            let fitting = if span.pieces.is_empty() { fitting.max(row_bytes.min(length)) } else { fitting };
            if !span.pieces.is_empty() {
                let (gap, read) = (from - span.range.end, span.range.end - span.range.start);
                let joined = call.joined(read, read - span.gap_bytes as u64, gap, fitting as u64);
                if fitting == 0 || joined.is_none() {
                    break;
                }
            }
            span.gap_bytes += to_usize(from - span.range.end);
            span.range.end = from + fitting as u64;
            span.pieces.end += 1;
            room = room.saturating_sub(fitting);
            if fitting < length {
                break;
            }
        }
        Some(span)
    }
}

/// Reads rows into their slots. Returns the number of system calls.
fn read_span(file: &File, read: &mut Read, span: &Span, scratch: &mut Vec<u8>, from: ReadFrom) -> io::Result<u64> {
    if let [piece] = &mut read.pieces[span.pieces.clone()] {
        let bytes = to_usize(span.range.start - piece.at)..to_usize(span.range.end - piece.at);
        let mut slices = [IoSliceMut::new(&mut piece.slot[bytes])];
        return read_all(file, &mut slices, read.offset + span.range.start, from);
    }
    // The unwanted bytes of all gaps go to the same scratch memory, in which each gap has its own part: slices must not
    // overlap.
    scratch.resize(scratch.len().max(span.gap_bytes), 0);
    let mut spare: &mut [u8] = scratch;
    let mut slices = Vec::with_capacity(2 * span.pieces.len());
    let mut at = span.range.start;
    for piece in &mut read.pieces[span.pieces.clone()] {
        if piece.at > at {
            let (gap, rest) = spare.split_at_mut(to_usize(piece.at - at));
            spare = rest;
            slices.push(IoSliceMut::new(gap));
            at = piece.at;
        }
        let (start, end) = (piece.at, piece.end().min(span.range.end));
        slices.push(IoSliceMut::new(&mut piece.slot[to_usize(at - start)..to_usize(end - start)]));
        at = end;
    }
    read_all(file, &mut slices, read.offset + span.range.start, from)
}

/// Fills all slices from the file, however the kernel splits the reads. Returns the number of system calls.
pub(crate) fn read_all(
    file: &File,
    mut slices: &mut [IoSliceMut<'_>],
    mut offset: u64,
    from: ReadFrom,
) -> io::Result<u64> {
    let mut calls = 0;
    while !slices.is_empty() {
        match read_some(file, slices, offset, from) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                calls += 1;
                offset += read as u64;
                IoSliceMut::advance_slices(&mut slices, read);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(calls)
}

fn read_some(file: &File, slices: &mut [IoSliceMut<'_>], offset: u64, from: ReadFrom) -> Result<usize, Errno> {
    match from {
        ReadFrom::Anywhere => rustix::io::preadv(file, slices, offset),
        ReadFrom::Memory => preadv_cached(file, slices, offset),
    }
}
