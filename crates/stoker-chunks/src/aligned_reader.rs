//! Reads local files past the page cache.
//!
//! ```text
//! disk ──aligned, up to 1 MiB──► buffer ──copy, check──► slots
//! ```
//!
//! Such a read needs an offset, a length and a memory address that are multiples of the file's alignment. Rows are not
//! aligned, so they are copied from a buffer.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::io::Errno;
use stoker_types::to_usize;

use crate::coalesce::Read;
use crate::stats::Asked;
use crate::verify::CHECKED_BYTES;

/// The size of a buffer, and so the maximum size of one read, in bytes. Rows of a buffer are still in a core's cache
/// when they are copied and verified.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// Reads a file through an aligned buffer.
#[derive(Debug)]
pub(crate) struct AlignedReader<'a> {
    file: &'a File,
    alignment: usize,
    /// The buffer; its address and length are aligned.
    buffer: &'a mut [u8],
    /// The range of the file that the buffer contains from its start on.
    window: Range<u64>,
    asked: Asked,
}

impl<'a> AlignedReader<'a> {
    /// Makes a reader with the aligned part of `memory`, which must be at least twice `alignment` long, a power of two.
    pub fn new(file: &'a File, alignment: usize, memory: &'a mut [u8]) -> Self {
        let start = memory.as_ptr().align_offset(alignment).min(memory.len());
        let buffer = &mut memory[start..];
        let length = buffer.len() - buffer.len() % alignment;
        Self { file, alignment, buffer: &mut buffer[..length], window: 0..0, asked: Asked::default() }
    }

    /// Reads the rows of a range into their slots, and verifies rows that have a checksum. The bytes between rows are
    /// read too, except those of gaps beyond the buffer's end. Returns the reads that it made.
    ///
    /// # Errors
    /// `UnexpectedEof` for a file that ends early; an error for which [`is_refusal`] holds if the file system does not
    /// support such reads.
    pub fn read(mut self, read: &mut Read) -> io::Result<Asked> {
        let end = read.offset + read.length;
        read.checks.restart();
        let (mut index, mut at) = (0, 0);
        while let Some(piece) = read.pieces.get_mut(index) {
            at = piece.at.max(at);
            if at >= piece.end() {
                index += 1;
                continue;
            }
            let offset = read.offset + at;
            if !self.window.contains(&offset) {
                self.fill(offset..end)?;
            }
            let found = &self.buffer[to_usize(offset - self.window.start)..][..to_usize(self.window.end - offset)];
            let rest = &mut piece.slot[to_usize(at - piece.at)..];
            let count = found.len().min(rest.len()).min(CHECKED_BYTES);
            rest[..count].copy_from_slice(&found[..count]);
            at += count as u64;
            read.check(at);
        }
        Ok(self.asked)
    }

    /// Fills the buffer with the first bytes of a range, extended to the alignment.
    fn fill(&mut self, range: Range<u64>) -> io::Result<()> {
        let start = range.start - range.start % self.alignment as u64;
        let wanted = to_usize((range.end - start).min(self.buffer.len() as u64));
        let length = wanted.next_multiple_of(self.alignment);
        self.asked.bytes += length as u64;
        let mut filled = 0;
        loop {
            let found = match rustix::io::pread(self.file, &mut self.buffer[filled..length], start + filled as u64) {
                Ok(found) => found,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            self.asked.requests += 1;
            if filled + found >= wanted {
                self.window = start..start + (filled + found) as u64;
                return Ok(());
            }
            // Only the end of a file is not aligned: if a read returns less than one aligned block, the file ends
            // there.
            let aligned = found - found % self.alignment;
            if aligned == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += aligned;
        }
    }
}

/// Returns whether an error says that the file system does not support direct reads. Some file systems report that only
/// when a file is read.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let errnos = [Errno::INVAL, Errno::OPNOTSUPP];
    errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
