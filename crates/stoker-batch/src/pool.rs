//! A pool that reuses the memory of batches.

use std::pin::pin;
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
    /// The memory, which may be a little longer than was asked for. `None` only while the value is dropped.
    memory: Option<Memory>,
    length: usize,
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

    /// Waits until the pool has free memory for `length` bytes, so that taking them needs no new memory.
    pub async fn until_free(&self, length: usize) {
        loop {
            let mut returned = pin!(self.until_returned());
            returned.as_mut().enable();
            let size = size_of_memory(length);
            if self.shared.state.lock().free.has(size, size_max_of(size)) {
                return;
            }
            returned.await;
        }
    }

    /// Returns a future that completes when memory is returned after the future was enabled.
    pub fn until_returned(&self) -> Notified<'_> {
        self.shared.returned.notified()
    }

    /// Takes `length` bytes of initialised memory with arbitrary content from the pool.
    ///
    /// Memory of a batch that has a few rows more or less than another one serves both: lengths are rounded up by a
    /// sixteenth at most, and free memory that is a quarter longer is taken too. Lists of as many rows differ by as much.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the operating system has no memory.
    pub fn take(&self, length: usize) -> Result<Pooled> {
        self.take_part(length, length)
    }

    /// Takes memory of `capacity` bytes, of which the first `length` bytes are used.
    ///
    /// # Errors
    /// The errors of [`BufferPool::take`].
    pub(crate) fn take_part(&self, length: usize, capacity: usize) -> Result<Pooled> {
        let size = size_of_memory(capacity.max(length));
        let (found, room) = {
            let mut state = self.shared.state.lock();
            state.used_bytes += size;
            let found = state.free.take(size, size_max_of(size));
            state.used_bytes += found.as_ref().map_or(0, |memory| memory.len() - size);
            state.shrink();
            (found, state.bytes_max.saturating_sub(state.used_bytes + state.free.bytes()))
        };
        let Some(memory) = found.or_else(|| self.make(size, room)) else {
            self.shared.state.lock().used_bytes -= size;
            return Err(Error::OutOfMemory { bytes: length });
        };
        Ok(Pooled { memory: Some(memory), length, pool: Arc::downgrade(&self.shared) })
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

/// Memory of fewer bytes has exactly the length that was asked for.
const ROUNDED_MIN: usize = 64 << 10;

/// Returns the size of the memory for a length.
fn size_of_memory(length: usize) -> usize {
    if length < ROUNDED_MIN {
        return length;
    }
    let step = (1usize << length.ilog2()) / 16;
    length.checked_next_multiple_of(step).unwrap_or(length)
}

/// Returns the size of the largest free memory that is taken for memory of a size.
fn size_max_of(size: usize) -> usize {
    if size < ROUNDED_MIN { size } else { size.saturating_add(size / 4) }
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
        self.memory.as_deref().and_then(|memory| memory.get(..self.length)).unwrap_or_default()
    }
}

impl AsMut<[u8]> for Pooled {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_deref_mut().and_then(|memory| memory.get_mut(..self.length)).unwrap_or_default()
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
