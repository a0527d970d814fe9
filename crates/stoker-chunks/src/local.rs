//! Reads local files through the page cache: the kernel scatters a range over the slots of its rows.

use std::fs::File;
use std::io::{self, IoSliceMut};

use stoker_types::to_usize;

#[cfg(target_os = "linux")]
use std::num::NonZeroU64;
use std::ops::Range;

use rustix::io::Errno;
use stoker_lake::preadv_cached;

use crate::coalesce::{Piece, Read};

/// The largest page size of operating systems, in bytes.
#[cfg(target_os = "linux")]
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The maximum number of slices per system call; Linux allows 1,024.
const SLICES_MAX: usize = 1_000;

/// The maximum number of bytes per system call if rows are verified, so that they are still in a core's cache then.
const CHECKED_BYTES: usize = 256 << 10;

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
    /// The number of rows that are in their slots, counted from the first row on.
    pub num_rows: usize,
    /// The number of system calls that read them.
    pub calls: u64,
}

/// Reads a range of a file into the slots of its rows, with one system call for up to 500 rows, and verifies rows that
/// have a checksum. Continues at `progress`. Returns before the end only if the next bytes are not in memory and `from`
/// is [`ReadFrom::Memory`].
pub(crate) fn read_local(
    file: &File,
    read: &mut Read,
    scratch: &mut Vec<u8>,
    from: ReadFrom,
    progress: &mut Progress,
) -> io::Result<()> {
    let gap_max = gaps(&read.pieces).max().unwrap_or(0);
    scratch.resize(scratch.len().max(gap_max), 0);
    // A call that meets a row outside the page cache is repeated as a whole later, so it must not be long.
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
            // A read that may wait will report the error, if there is one.
            Err(_) if from == ReadFrom::Memory => return Ok(()),
            Err(error) => return Err(error),
        }
        group.iter_mut().for_each(Piece::check);
        progress.num_rows += count;
    }
    Ok(())
}

/// Reads a range as [`read_local`] does, but from the disk rather than from the page cache.
///
/// Returns the number of system calls.
pub(crate) fn read_past_cache(file: &File, read: &mut Read) -> io::Result<u64> {
    forget(file, read.offset..read.offset + read.length);
    let mut progress = Progress::default();
    read_local(file, read, &mut Vec::new(), ReadFrom::Anywhere, &mut progress)?;
    Ok(progress.calls)
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

/// Returns the numbers of bytes between neighbouring rows.
fn gaps(pieces: &[Piece]) -> impl Iterator<Item = usize> + '_ {
    pieces.windows(2).map(|pair| to_usize(pair[1].at - pair[0].at) - pair[0].slot.len())
}

/// Reads rows, the first of which begins at offset `start` of the file. Returns the number of system calls.
fn read_pieces(file: &File, pieces: &mut [Piece], start: u64, scratch: &mut [u8], from: ReadFrom) -> io::Result<u64> {
    // The unwanted bytes of all gaps go to the same scratch memory, in which each gap has its own part: slices must not
    // overlap.
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
