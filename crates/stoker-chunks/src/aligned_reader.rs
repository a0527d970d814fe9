//! Reads of local files past the system's memory of them.
//!
//! ```text
//! disk ──aligned, up to 1 MiB──► buffer ──copy, check──► slots
//! ```
//!
//! Such a read takes offset, length and memory in multiples of the file's alignment, which rows have no regard for.

use std::fs::File;
use std::io;
use std::mem;
use std::ops::Range;

use rustix::io::Errno;

use crate::coalesce::Read;
use crate::stats::Asked;

/// Bytes of a buffer, and so of one read, at most: what is copied and checked is still in a core's cache.
pub(crate) const BUFFER_BYTES: usize = 1 << 20;

/// Reads a file through a buffer.
#[derive(Debug)]
pub(crate) struct AlignedReader<'a> {
    file: &'a File,
    alignment: usize,
    /// Aligned, and of an aligned length.
    buffer: &'a mut [u8],
    /// Where in the file the bytes lie that the buffer begins with.
    window: Range<u64>,
    asked: Asked,
}

impl<'a> AlignedReader<'a> {
    /// A reader with the aligned part of some memory, which takes at least two alignments; these are powers of two.
    pub fn new(file: &'a File, alignment: usize, memory: &'a mut [u8]) -> Self {
        let start = memory.as_ptr().align_offset(alignment).min(memory.len());
        let buffer = &mut memory[start..];
        let length = buffer.len() - buffer.len() % alignment;
        Self { file, alignment, buffer: &mut buffer[..length], window: 0..0, asked: Asked::default() }
    }

    /// Reads the rows of a range into their slots, and compares those that have a checksum with it. What lies between them is
    /// read unless it fills the buffer. Returns what was asked of the disk.
    ///
    /// # Errors
    /// `UnexpectedEof` for a file that ends early; see [`is_refusal`] for a file system that does not read so.
    pub fn read(mut self, read: &mut Read) -> io::Result<Asked> {
        let end = read.offset + read.length;
        for piece in &mut read.pieces {
            let mut offset = read.offset + piece.at;
            let mut rest: &mut [u8] = &mut piece.slot;
            while !rest.is_empty() {
                if !self.window.contains(&offset) {
                    self.fill(offset..end)?;
                }
                let found =
                    &self.buffer[(offset - self.window.start) as usize..][..(self.window.end - offset) as usize];
                let count = found.len().min(rest.len());
                let (head, tail) = mem::take(&mut rest).split_at_mut(count);
                head.copy_from_slice(&found[..count]);
                offset += count as u64;
                rest = tail;
            }
            piece.check();
        }
        Ok(self.asked)
    }

    /// Reads the first bytes of a range, and what of them else lies within the alignment.
    fn fill(&mut self, range: Range<u64>) -> io::Result<()> {
        let start = range.start - range.start % self.alignment as u64;
        let wanted = (range.end - start).min(self.buffer.len() as u64) as usize;
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
            // Only the end of a file is not aligned: after less than that, nothing comes.
            let aligned = found - found % self.alignment;
            if aligned == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += aligned;
        }
    }
}

/// Whether a file system says that it does not read files so: some say it only then.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    let errnos = [Errno::INVAL, Errno::OPNOTSUPP];
    errnos.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
