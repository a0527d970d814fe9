//! A part of a file.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use stoker_types::to_usize;

use stoker_files::FileBytes;

/// A part of a file that is read from its beginning to its end.
#[derive(Debug)]
pub(crate) struct FileRange {
    file: Arc<dyn FileBytes>,
    start: u64,
    /// The offset in the file of the next bytes that are read.
    next: u64,
    end: u64,
    buffer: Vec<u8>,
    at: usize,
    step: usize,
}

impl FileRange {
    /// Begins at `start`. Reads of fewer than `step` bytes read `step` bytes at once.
    pub fn new(file: Arc<dyn FileBytes>, start: u64, end: u64, step: usize) -> Self {
        Self { file, start, next: start, end, buffer: Vec::new(), at: 0, step: step.max(1) }
    }

    /// Returns the number of bytes that were taken.
    pub fn num_taken(&self) -> u64 {
        self.next.saturating_sub(self.start).saturating_sub((self.buffer.len() - self.at) as u64)
    }

    fn left(&self) -> usize {
        to_usize(self.end.saturating_sub(self.next))
    }
}

impl BufRead for FileRange {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            let length = self.left().min(self.step);
            self.buffer.resize(length, 0);
            self.at = length;
            self.file.read_at(self.next, &mut self.buffer)?;
            (self.at, self.next) = (0, self.next.saturating_add(length as u64));
        }
        Ok(self.buffer.get(self.at..).unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.at = self.at.saturating_add(amount).min(self.buffer.len());
    }
}

impl Read for FileRange {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.buffer.len() && into.len() >= self.step {
            let length = self.left().min(into.len());
            let Some(into) = into.get_mut(..length) else { return Ok(0) };
            self.file.read_at(self.next, into)?;
            self.next = self.next.saturating_add(length as u64);
            return Ok(length);
        }
        let mut found = self.fill_buf()?;
        let length = found.read(into)?;
        self.consume(length);
        Ok(length)
    }
}
