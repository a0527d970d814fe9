//! Flow control: <https://www.rfc-editor.org/rfc/rfc9113#name-flow-control>.

use super::frame::WINDOW_BYTES_MAX;
use super::violation;
use crate::Result;

/// What the server may still send. It gets its window back when half is used: what is not read yet waits in the socket,
/// which holds the server up as well.
pub(super) struct ReceiveWindow {
    size: u32,
    left: u32,
}

impl ReceiveWindow {
    pub fn new(size: u32) -> Self {
        Self { size, left: size }
    }

    /// Takes note of a frame; returns what is to be given back to the server.
    ///
    /// # Errors
    /// More bytes than the window has.
    pub fn receive(&mut self, bytes: usize) -> Result<Option<u32>> {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| violation("it sends more than the window allows"))?;
        if self.left > self.size / 2 {
            return Ok(None);
        }
        let used = self.size - self.left;
        self.left = self.size;
        Ok(Some(used))
    }
}

/// What the client may still send. Negative when the server made its windows smaller.
pub(super) struct SendWindow(i64);

impl SendWindow {
    pub fn new(bytes: u32) -> Self {
        Self(bytes.into())
    }

    pub fn left(&self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    pub fn send(&mut self, bytes: usize) {
        self.0 -= bytes as i64;
    }

    /// Makes the window larger or smaller.
    ///
    /// # Errors
    /// A window of more than 2^31 - 1 bytes.
    pub fn change(&mut self, by: i64) -> Result<()> {
        self.0 += by;
        match self.0 <= i64::from(WINDOW_BYTES_MAX) {
            true => Ok(()),
            false => Err(violation("it opens a window of more than 2^31 - 1 bytes")),
        }
    }
}
