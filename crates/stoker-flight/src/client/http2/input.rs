//! Bytes that were read before anybody asked for them.

/// Bytes at a time at most: heads of frames, and data that is not worth a read of its own.
pub(super) const INPUT_BYTES: usize = 64 << 10;

/// A buffer between the socket and what reads heads of frames.
pub(super) struct Input {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Input {
    pub fn new() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into(), begin: 0, end: 0 }
    }

    /// What is there.
    pub fn buffered(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Drops the first bytes of what is there, or all when there are fewer.
    pub fn consume(&mut self, bytes: usize) {
        self.begin = self.end.min(self.begin + bytes);
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Moves bytes to `out`, as many as there are.
    pub fn take(&mut self, out: &mut [u8]) -> usize {
        let taken = out.len().min(self.buffered().len());
        out[..taken].copy_from_slice(&self.buffered()[..taken]);
        self.consume(taken);
        taken
    }

    /// Memory for up to `bytes` more bytes; empty only when the buffer is full.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.begin > 0 && self.end + bytes > self.bytes.len() {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let end = self.bytes.len().min(self.end + bytes);
        &mut self.bytes[self.end..end]
    }

    /// Takes note of bytes that were written to [`Input::space`].
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }
}
