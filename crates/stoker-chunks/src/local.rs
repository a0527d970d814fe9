//! Reads of local files through the system's memory of them: the kernel scatters a range over the slots of its rows.

use std::fs::File;
use std::io::{self, IoSliceMut};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::io::Errno;
use stoker_lake::preadv_cached;

use crate::coalesce::{Piece, Read};

/// The largest pages that systems keep files in.
#[cfg(target_os = "linux")]
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Slices per system call; Linux takes 1,024.
const SLICES_MAX: usize = 1_000;

/// Bytes of checked rows per system call: what was read is still in a core's cache when it is checked.
const CHECKED_BYTES: usize = 256 << 10;

/// Where a read may take bytes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadFrom {
    /// From wherever they are, which may take long.
    Anywhere,
    /// Only from the system's memory of files.
    Memory,
}

/// How far a range was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Rows that are in their slots, of all rows from the first one on.
    pub num_rows: usize,
    /// System calls that brought them.
    pub calls: u64,
}

/// Reads a range of a file into the slots of its rows, with one system call for up to 500 of them, and compares those that have
/// a checksum with it. Goes on where `progress` is, and ends early only where it may not wait for what comes next.
pub(crate) fn read_local(
    file: &File,
    read: &mut Read,
    scratch: &mut Vec<u8>,
    from: ReadFrom,
    progress: &mut Progress,
) -> io::Result<()> {
    let gap_max = gaps(&read.pieces).max().unwrap_or(0);
    scratch.resize(scratch.len().max(gap_max), 0);
    // What a call got before it met a row that is not there is asked for again.
    let is_short = read.is_checked() || from == ReadFrom::Memory;
    let bytes_max = if is_short { CHECKED_BYTES } else { usize::MAX };
    while progress.num_rows < read.pieces.len() {
        let rest = &mut read.pieces[progress.num_rows..];
        let mut bytes = 0;
        let fits = |piece: &&Piece| {
            bytes += piece.slot.len();
            bytes <= bytes_max
        };
        let count = rest.iter().take(SLICES_MAX / 2).take_while(fits).count().max(1);
        let group = &mut rest[..count];
        let at = group.first().map_or(0, |piece| piece.at);
        match read_pieces(file, group, read.offset + at, scratch, from) {
            Ok(calls) => progress.calls += calls,
            // A read that may wait says what is wrong, if something is.
            Err(_) if from == ReadFrom::Memory => return Ok(()),
            Err(error) => return Err(error),
        }
        group.iter_mut().for_each(Piece::check);
        progress.num_rows += count;
    }
    Ok(())
}

/// Reads a range as [`read_local`] does, from the device rather than from the system's memory of the file.
///
/// Returns the calls made.
pub(crate) fn read_past_cache(file: &File, read: &mut Read) -> io::Result<u64> {
    forget(file, read.offset..read.offset + read.length);
    let mut progress = Progress::default();
    read_local(file, read, &mut Vec::new(), ReadFrom::Anywhere, &mut progress)?;
    Ok(progress.calls)
}

/// Lets the system forget a range of a file. Only Linux can, and a file system may refuse: then the next read gives the same
/// bytes once more.
pub(crate) fn forget(file: &File, range: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        // Only whole pages go.
        let start = range.start - range.start % PAGE_BYTES_MAX;
        let length = NonZeroU64::new(range.end.next_multiple_of(PAGE_BYTES_MAX) - start);
        let _ = rustix::fs::fadvise(file, start, length, rustix::fs::Advice::DontNeed);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, range);
}

/// Bytes between neighbouring rows.
fn gaps(pieces: &[Piece]) -> impl Iterator<Item = usize> + '_ {
    pieces.windows(2).map(|pair| (pair[1].at - pair[0].at) as usize - pair[0].slot.len())
}

/// Reads rows, the first of which begins at `start` in the file.
fn read_pieces(file: &File, pieces: &mut [Piece], start: u64, scratch: &mut [u8], from: ReadFrom) -> io::Result<u64> {
    // Unwanted bytes of all gaps land in the same scratch memory; slices must not overlap, so each gap takes a part of its own.
    let widths: Vec<usize> = gaps(pieces).collect();
    let mut own;
    let total: usize = widths.iter().sum();
    let mut spare: &mut [u8] = if total <= scratch.len() {
        scratch
    } else {
        own = vec![0; total];
        &mut own
    };
    let mut slices = Vec::with_capacity(2 * pieces.len());
    for (index, piece) in pieces.iter_mut().enumerate() {
        slices.push(IoSliceMut::new(&mut piece.slot));
        if let Some(width) = widths.get(index).copied().filter(|width| *width > 0) {
            let (gap, rest) = spare.split_at_mut(width);
            spare = rest;
            slices.push(IoSliceMut::new(gap));
        }
    }
    read_all(file, &mut slices, start, from)
}

/// Fills all slices from the file, however the kernel cuts the reads. Returns the calls made.
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
