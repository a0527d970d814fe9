//! Reused memory for batches.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Keeps the memory of dropped batches for the next ones: fresh memory costs a page fault for every 4 KiB.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    free: Mutex<Free>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Free {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

/// Memory that goes back to its pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Pooled {
    memory: Vec<u8>,
    pool: Weak<Shared>,
}

impl BufferPool {
    /// A pool that keeps at most `bytes_max` bytes that nobody uses.
    pub fn new(bytes_max: usize) -> Self {
        Self { shared: Arc::new(Shared { free: Mutex::default(), bytes_max }) }
    }

    /// Memory of exactly `length` initialised bytes with any content.
    pub(crate) fn take(&self, length: usize) -> Pooled {
        let found = {
            let mut free = self.shared.free.lock();
            let place = free.buffers.iter().position(|buffer| buffer.len() == length);
            place.map(|place| {
                free.bytes -= length;
                free.buffers.swap_remove(place)
            })
        };
        let memory = found.unwrap_or_else(|| vec![0; length]);
        Pooled { memory, pool: Arc::downgrade(&self.shared) }
    }
}

impl Pooled {
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.memory.len()
    }
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let memory = std::mem::take(&mut self.memory);
        let mut free = pool.free.lock();
        // Make room by dropping the oldest, so that a change of batch size does not fill the pool for ever.
        while free.bytes + memory.len() > pool.bytes_max && !free.buffers.is_empty() {
            let oldest = free.buffers.remove(0);
            free.bytes -= oldest.len();
        }
        if !memory.is_empty() && free.bytes + memory.len() <= pool.bytes_max {
            free.bytes += memory.len();
            free.buffers.push(memory);
        }
    }
}
