//! Reads files from their beginning to their end.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use crate::FileBytes;

/// The number of bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// A file that is read from its beginning to its end.
#[derive(Debug)]
pub struct Sequential {
    file: Arc<dyn FileBytes>,
    /// The offset in the file of the next bytes that are read.
    next: u64,
    buffer: Vec<u8>,
    at: usize,
}

impl Sequential {
    /// Begins at the start of a file, and says that all of it will be read.
    pub fn new(file: Arc<dyn FileBytes>) -> Self {
        let whole = 0..file.size();
        file.will_read(std::slice::from_ref(&whole));
        Self { file, next: 0, buffer: Vec::new(), at: 0 }
    }

    /// Returns the offset in the file of the next byte.
    pub fn position(&self) -> u64 {
        self.next - (self.buffer.len() - self.at) as u64
    }
}

impl BufRead for Sequential {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            let left = self.file.size().saturating_sub(self.next);
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(READ_BYTES);
            self.buffer.resize(length, 0);
            self.at = length;
            self.file.read_at(self.next, &mut self.buffer)?;
            (self.at, self.next) = (0, self.next + length as u64);
        }
        Ok(self.buffer.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.at = self.at.saturating_add(amount).min(self.buffer.len());
    }
}

impl Read for Sequential {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let found = self.fill_buf()?;
        let length = found.len().min(into.len());
        into[..length].copy_from_slice(&found[..length]);
        self.consume(length);
        Ok(length)
    }
}
