//! Reused memory for batches.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Keeps the memory of dropped batches for the next ones: fresh memory costs a page fault for every 4 KiB.
#[derive(Clone, Debug)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct State {
    /// Memory that nobody uses, the oldest first.
    free: VecDeque<Vec<u8>>,
    free_bytes: usize,
    used_bytes: usize,
}

/// Memory that goes back to its pool when it is dropped.
#[derive(Debug)]
pub(crate) struct Pooled {
    memory: Vec<u8>,
    pool: Weak<Shared>,
}

impl BufferPool {
    /// A pool that keeps memory as long as that and what is in use take at most `bytes_max` bytes together.
    pub fn new(bytes_max: usize) -> Self {
        Self { shared: Arc::new(Shared { state: Mutex::default(), bytes_max }) }
    }

    /// Memory of exactly `length` initialised bytes with any content.
    pub(crate) fn take(&self, length: usize) -> Pooled {
        let found = {
            let mut state = self.shared.state.lock();
            state.used_bytes += length;
            let place = state.free.iter().rposition(|buffer| buffer.len() == length);
            let found = place.and_then(|place| state.free.remove(place));
            state.free_bytes -= found.as_ref().map_or(0, Vec::len);
            state.shrink(self.shared.bytes_max);
            found
        };
        let memory = found.unwrap_or_else(|| vec![0; length]);
        Pooled { memory, pool: Arc::downgrade(&self.shared) }
    }
}

impl State {
    /// Drops the oldest free memory until everything fits.
    fn shrink(&mut self, bytes_max: usize) {
        while self.used_bytes + self.free_bytes > bytes_max
            && let Some(oldest) = self.free.pop_front()
        {
            self.free_bytes -= oldest.len();
        }
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
        let mut state = pool.state.lock();
        state.used_bytes -= memory.len();
        state.free_bytes += memory.len();
        state.free.push_back(memory);
        state.shrink(pool.bytes_max);
    }
}
