//! A pool that reuses the memory of batches.

use std::sync::{Arc, Weak};

use arrow_buffer::Buffer;
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::free_memory::FreeMemory;
use crate::memory::Memory;
use crate::{Error, Result};

/// The fraction of a pool's size that it keeps even while used memory takes the whole size (one sixteenth). Consumers
/// hold batches in addition to those that fill the budget; the memory that they drop is needed for the next batches. If
/// it were released, it would be zeroed and page-faulted again.
const SPARE_DIVISOR: usize = 16;

/// A pool of the memory of dropped batches, for the next batches: fresh memory costs a page fault for every 4 KiB.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Notified when memory is returned.
    returned: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Memory that is not used.
    free: FreeMemory,
    used_bytes: usize,
    bytes_max: usize,
}

/// Memory that returns to its pool when it is dropped.
#[derive(Debug)]
pub struct Pooled {
    /// `None` only while the value is dropped.
    memory: Option<Memory>,
    pool: Weak<Shared>,
}

impl BufferPool {
    /// Makes a pool. It keeps free memory while free and used memory together take at most `bytes_max` bytes, and up to
    /// a sixteenth of `bytes_max` however much is used.
    pub fn new(bytes_max: usize) -> Self {
        let state = Mutex::new(State { bytes_max, ..State::default() });
        Self { shared: Arc::new(Shared { state, returned: Notify::new() }) }
    }

    /// Changes the size of the pool. Free memory beyond it is released at once.
    pub fn resize(&self, bytes_max: usize) {
        let mut state = self.shared.state.lock();
        state.bytes_max = bytes_max;
        state.shrink();
    }

    /// Makes the size of the pool at least `bytes`.
    pub fn grow(&self, bytes: usize) {
        let mut state = self.shared.state.lock();
        state.bytes_max = state.bytes_max.max(bytes);
    }

    /// The number of bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.shared.state.lock().used_bytes
    }

    /// The number of bytes that are kept for reuse.
    pub fn free_bytes(&self) -> usize {
        self.shared.state.lock().free.bytes()
    }

    /// Returns a future that completes when memory is returned after the future was enabled.
    pub fn until_returned(&self) -> Notified<'_> {
        self.shared.returned.notified()
    }

    /// Takes exactly `length` bytes of initialised memory with arbitrary content from the pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the operating system has no memory.
    pub fn take(&self, length: usize) -> Result<Pooled> {
        let (found, room) = {
            let mut state = self.shared.state.lock();
            state.used_bytes += length;
            let found = state.free.take(length);
            state.shrink();
            (found, state.bytes_max.saturating_sub(state.used_bytes + state.free.bytes()))
        };
        let Some(memory) = found.or_else(|| self.make(length, room)) else {
            self.shared.state.lock().used_bytes -= length;
            return Err(Error::OutOfMemory { bytes: length });
        };
        Ok(Pooled { memory: Some(memory), pool: Arc::downgrade(&self.shared) })
    }

    /// Makes new memory. Other memory of the same region is added to the free memory.
    fn make(&self, length: usize, room: usize) -> Option<Memory> {
        let mut made = Memory::several(length, room.saturating_add(length))?;
        let memory = made.pop();
        if !made.is_empty() {
            let mut state = self.shared.state.lock();
            made.into_iter().for_each(|memory| state.free.add(memory));
            state.shrink();
        }
        memory
    }
}

impl State {
    /// Releases the oldest free memory until the size fits, or at most a sixteenth of it is free memory.
    fn shrink(&mut self) {
        while self.keeps_too_much() && self.free.take_oldest().is_some() {}
    }

    fn keeps_too_much(&self) -> bool {
        let free_bytes = self.free.bytes();
        self.used_bytes + free_bytes > self.bytes_max && free_bytes > self.bytes_max / SPARE_DIVISOR
    }
}

impl Pooled {
    /// Returns the address of the memory, for writes through it while the value lives.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_mut().as_mut_ptr()
    }

    /// Converts the memory to an Arrow buffer. When the last reference to the buffer is dropped, the memory returns to
    /// its pool.
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
        state.free.add(memory);
        state.shrink();
        drop(state);
        pool.returned.notify_waiters();
    }
}
