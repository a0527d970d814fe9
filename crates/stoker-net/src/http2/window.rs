//! Flow control: <https://www.rfc-editor.org/rfc/rfc9113#name-flow-control>.

use super::frame::WINDOW_BYTES_MAX;
use super::violation;
use crate::Result;

/// The bytes that the server may still send. The client returns the used part when half of the window is used, even if
/// the data was not read: unread data stays in the socket, which slows the server down as well.
pub(super) struct ReceiveWindow {
    size: u32,
    left: u32,
}

impl ReceiveWindow {
    pub fn new(size: u32) -> Self {
        Self { size, left: size }
    }

    /// Counts a frame of `bytes` bytes. Returns the increment for a WINDOW_UPDATE frame, if one is due.
    ///
    /// # Errors
    /// A frame with more bytes than the window has left.
    pub fn receive(&mut self, bytes: usize) -> Result<Option<u32>> {
        let left = u32::try_from(bytes).ok().and_then(|bytes| self.left.checked_sub(bytes));
        self.left = left.ok_or_else(|| violation("it sends more bytes than the flow-control window allows"))?;
        if self.left > self.size / 2 {
            return Ok(None);
        }
        let used = self.size - self.left;
        self.left = self.size;
        Ok(Some(used))
    }
}

/// The bytes that the client may still send. The number is negative after the server made its windows smaller.
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
            false => Err(violation("it enlarges a flow-control window beyond 2^31 - 1 bytes")),
        }
    }
}
