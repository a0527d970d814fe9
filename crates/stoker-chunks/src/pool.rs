//! Reused memory for batches.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use arrow_buffer::Buffer;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::memory::Memory;
use crate::{Error, Result};

/// The part of a pool's bytes that it keeps beside any memory in use. Consumers hold batches beside those that fill the budget: what
/// they drop is wanted for the next ones, not given back to be cleared and faulted in once more.
const SPARE_DIVISOR: usize = 16;

/// Keeps the memory of dropped batches for the next ones: fresh memory costs a page fault for every 4 KiB.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Told when memory comes back.
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Memory that nobody uses, the oldest first.
    free: VecDeque<Memory>,
    free_bytes: usize,
    used_bytes: usize,
    bytes_max: usize,
}

/// Memory that goes back to its pool when it is dropped.
#[derive(Debug)]
pub struct Pooled {
    /// Taken when it is dropped.
    memory: Option<Memory>,
    pool: Weak<Shared>,
}

impl BufferPool {
    /// A pool that keeps memory as long as that and what is in use take at most `bytes_max` bytes together, and a sixteenth of them
    /// whatever is in use.
    pub fn new(bytes_max: usize) -> Self {
        let state = Mutex::new(State { bytes_max, ..State::default() });
        Self { shared: Arc::new(Shared { state, returned: Notify::new() }) }
    }

    /// Changes how much is kept; memory beyond it is given back at once.
    pub fn resize(&self, bytes_max: usize) {
        let mut state = self.shared.state.lock();
        state.bytes_max = bytes_max;
        state.shrink();
    }

    /// Keeps at least so much from now on.
    pub fn grow(&self, bytes: usize) {
        let mut state = self.shared.state.lock();
        state.bytes_max = state.bytes_max.max(bytes);
    }

    /// Bytes that are in use.
    #[cfg(test)]
    pub fn used_bytes(&self) -> usize {
        self.shared.state.lock().used_bytes
    }

    /// Bytes that are kept and that nobody uses.
    pub fn free_bytes(&self) -> usize {
        self.shared.state.lock().free_bytes
    }

    /// Waits until more memory comes back than had come when the future was enabled.
    pub fn until_returned(&self) -> Notified<'_> {
        self.shared.returned.notified()
    }

    /// Memory of exactly `length` initialised bytes with any content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the system gives none.
    pub fn take(&self, length: usize) -> Result<Pooled> {
        let (found, room) = {
            let mut state = self.shared.state.lock();
            state.used_bytes += length;
            let place = state.free.iter().rposition(|buffer| buffer.len() == length);
            let found = place.and_then(|place| state.free.remove(place));
            state.free_bytes -= found.as_ref().map_or(0, |memory| memory.len());
            state.shrink();
            (found, state.bytes_max.saturating_sub(state.used_bytes + state.free_bytes))
        };
        let Some(memory) = found.or_else(|| self.make(length, room)) else {
            self.shared.state.lock().used_bytes -= length;
            return Err(Error::OutOfMemory { bytes: length });
        };
        Ok(Pooled { memory: Some(memory), pool: Arc::downgrade(&self.shared) })
    }

    /// New memory; what shares its region is kept for later.
    fn make(&self, length: usize, room: usize) -> Option<Memory> {
        let mut made = Memory::several(length, room.saturating_add(length))?;
        let memory = made.pop();
        if !made.is_empty() {
            let mut state = self.shared.state.lock();
            state.free_bytes += made.len() * length;
            state.free.extend(made);
            state.shrink();
        }
        memory
    }
}

impl State {
    /// Drops the oldest free memory until everything fits, or little is left.
    fn shrink(&mut self) {
        while self.used_bytes + self.free_bytes > self.bytes_max
            && self.free_bytes > self.bytes_max / SPARE_DIVISOR
            && let Some(oldest) = self.free.pop_front()
        {
            self.free_bytes -= oldest.len();
        }
    }
}

impl Pooled {
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut().as_mut_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.as_ref().len()
    }

    /// The memory as an Arrow buffer; it goes back to its pool with the buffer's last owner.
    pub fn freeze(self) -> Buffer {
        Buffer::from(Bytes::from_owner(self))
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_deref().unwrap_or_default()
    }
}

impl AsMut<[u8]> for Pooled {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let (Some(pool), Some(memory)) = (self.pool.upgrade(), self.memory.take()) else { return };
        let mut state = pool.state.lock();
        state.used_bytes -= memory.len();
        state.free_bytes += memory.len();
        state.free.push_back(memory);
        state.shrink();
        drop(state);
        pool.returned.notify_waiters();
    }
}
