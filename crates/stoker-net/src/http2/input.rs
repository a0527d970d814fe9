//! The input buffer: bytes that were read from the socket before the caller asked for them.

/// The size of the input buffer, which is for heads of frames and for reads too small to go straight to the caller's
/// memory.
pub(super) const INPUT_BYTES: usize = 64 << 10;

/// A buffer between the socket and the parser of frames.
pub(super) struct Input {
    bytes: Box<[u8]>,
    begin: usize,
    end: usize,
}

impl Input {
    pub fn new() -> Self {
        Self { bytes: vec![0; INPUT_BYTES].into(), begin: 0, end: 0 }
    }

    /// Returns the buffered bytes.
    pub fn buffered(&self) -> &[u8] {
        &self.bytes[self.begin..self.end]
    }

    /// Drops the first `bytes` buffered bytes, or all when there are fewer.
    pub fn consume(&mut self, bytes: usize) {
        self.begin = self.end.min(self.begin + bytes);
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        }
    }

    /// Moves buffered bytes to `out`, as many as there are and fit. Returns their number.
    pub fn take(&mut self, out: &mut [u8]) -> usize {
        let taken = out.len().min(self.buffered().len());
        out[..taken].copy_from_slice(&self.buffered()[..taken]);
        self.consume(taken);
        taken
    }

    /// Returns memory for up to `bytes` more bytes. It is empty only when the buffer is full.
    pub fn space(&mut self, bytes: usize) -> &mut [u8] {
        if self.begin > 0 && self.end + bytes > self.bytes.len() {
            self.bytes.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let end = self.bytes.len().min(self.end + bytes);
        &mut self.bytes[self.end..end]
    }

    /// Records that `bytes` bytes were written to [`Input::space`].
    pub fn filled(&mut self, bytes: usize) {
        self.end = self.bytes.len().min(self.end + bytes);
    }
}
