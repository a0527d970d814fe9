//! Bytes in memory as a source of symphonia's readers.

use std::io::{self, Read, Seek, SeekFrom};

use symphonia::core::io::{MediaSource, MediaSourceStream, MediaSourceStreamOptions};

/// Some bytes that replace the beginning of a file, followed by the rest of the file.
struct MemoryFile<'a> {
    head: Vec<u8>,
    rest: &'a [u8],
    position: u64,
}

/// Returns a reader of `head` followed by `rest`.
pub(crate) fn reader(head: Vec<u8>, rest: &[u8]) -> MediaSourceStream<'_> {
    let source = MemoryFile { head, rest, position: 0 };
    MediaSourceStream::new(Box::new(source), MediaSourceStreamOptions::default())
}

impl MemoryFile<'_> {
    fn length(&self) -> u64 {
        self.head.len() as u64 + self.rest.len() as u64
    }
}

impl Read for MemoryFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let position = usize::try_from(self.position).unwrap_or(usize::MAX);
        let bytes = match self.head.get(position..).filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => bytes,
            None => self.rest.get(position.saturating_sub(self.head.len())..).unwrap_or_default(),
        };
        let count = bytes.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), bytes.get(..count)) {
            to.copy_from_slice(from);
        }
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for MemoryFile<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(offset) => self.length().checked_add_signed(offset),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl MediaSource for MemoryFile<'_> {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.length())
    }
}
