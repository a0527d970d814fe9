//! Reads of local files through the system's memory of them: the kernel scatters a range over the slots of its rows.

use std::fs::File;
use std::io::{self, IoSliceMut};
#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;

use crate::coalesce::{Piece, Read};

/// The largest pages that systems keep files in.
#[cfg(target_os = "linux")]
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Slices per system call; Linux takes 1,024.
const SLICES_MAX: usize = 1_000;

/// Bytes of checked rows per system call: what was read is still in a core's cache when it is checked.
const CHECKED_BYTES: usize = 256 << 10;

/// Reads a range of a file into the slots of its rows, with one system call for up to 500 of them, and compares those that have
/// a checksum with it. Returns the calls made.
pub(crate) fn read_local(file: &File, read: &mut Read, scratch: &mut Vec<u8>) -> io::Result<u64> {
    let gap_max = gaps(&read.pieces).max().unwrap_or(0);
    scratch.resize(scratch.len().max(gap_max), 0);
    let bytes_max = if read.is_checked() { CHECKED_BYTES } else { usize::MAX };
    let mut calls = 0;
    let mut rest = read.pieces.as_mut_slice();
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |piece: &&Piece| {
            bytes += piece.slot.len();
            bytes <= bytes_max
        };
        let count = rest.iter().take(SLICES_MAX / 2).take_while(fits).count().max(1);
        let (group, more) = rest.split_at_mut(count);
        let at = group.first().map_or(0, |piece| piece.at);
        calls += read_pieces(file, group, read.offset + at, scratch)?;
        group.iter_mut().for_each(Piece::check);
        rest = more;
    }
    Ok(calls)
}

/// Reads a range as [`read_local`] does, from the device rather than from the system's memory of the file.
pub(crate) fn read_past_cache(file: &File, read: &mut Read) -> io::Result<u64> {
    forget(file, read.offset..read.offset + read.length);
    read_local(file, read, &mut Vec::new())
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
fn read_pieces(file: &File, pieces: &mut [Piece], start: u64, scratch: &mut [u8]) -> io::Result<u64> {
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
    read_all(file, &mut slices, start)
}

/// Fills all slices from the file, however the kernel cuts the reads. Returns the calls made.
pub(crate) fn read_all(file: &File, mut slices: &mut [IoSliceMut<'_>], mut offset: u64) -> io::Result<u64> {
    let mut calls = 0;
    while !slices.is_empty() {
        match rustix::io::preadv(file, slices, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                calls += 1;
                offset += read as u64;
                IoSliceMut::advance_slices(&mut slices, read);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(calls)
}
