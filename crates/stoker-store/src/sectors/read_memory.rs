//! Memory of reads that is used again for the next ones.
//!
//! Memory that one thread allocates and another one frees goes back to the operating system sooner or later, and new
//! memory costs a page fault for every 4 KiB: more than reading them from the page cache.

use std::mem::take;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

/// The shortest read whose memory is kept, in bytes. Shorter ones take the allocator's small blocks.
const KEPT_MIN: usize = 32 << 10;

/// Lengths are rounded up to a multiple of this, so that memory serves reads of about its length.
const STEP: usize = 32 << 10;

/// The most bytes that are kept.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// The memory that is kept.
#[derive(Debug, Default)]
pub(super) struct ReadMemory {
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    /// The memory that was used last is at the end.
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

/// Memory for a read.
pub(super) struct Taken {
    block: Vec<u8>,
    length: usize,
    from: Weak<ReadMemory>,
}

impl ReadMemory {
    /// Returns `length` bytes of arbitrary content.
    pub fn take(self: &Arc<Self>, length: usize) -> Taken {
        if length < KEPT_MIN {
            return Taken { block: vec![0; length], length, from: Weak::new() };
        }
        let size = length.next_multiple_of(STEP);
        let block = self.free.lock().take(size).unwrap_or_else(|| vec![0; size]);
        Taken { block, length, from: Arc::downgrade(self) }
    }
}

impl Free {
    /// Takes the smallest block that has `size` bytes, but not one that is more than twice as large.
    fn take(&mut self, size: usize) -> Option<Vec<u8>> {
        let fits = self.blocks.iter().enumerate().filter(|(_, block)| (size..=2 * size).contains(&block.len()));
        let (index, _) = fits.min_by_key(|(_, block)| block.len())?;
        let block = self.blocks.remove(index);
        self.bytes -= block.len();
        Some(block)
    }

    /// Keeps a block, and returns those that are kept no longer.
    fn add(&mut self, block: Vec<u8>) -> Vec<Vec<u8>> {
        self.bytes += block.len();
        self.blocks.push(block);
        let mut left = self.bytes;
        let too_many = |block: &&Vec<u8>| {
            let is_too_many = left > KEPT_BYTES_MAX;
            left -= block.len();
            is_too_many
        };
        let count = self.blocks.iter().take_while(too_many).count();
        let released: Vec<Vec<u8>> = self.blocks.drain(..count).collect();
        self.bytes -= released.iter().map(Vec::len).sum::<usize>();
        released
    }
}

impl Taken {
    pub fn as_mut(&mut self) -> &mut [u8] {
        self.block.get_mut(..self.length).unwrap_or_default()
    }

    /// Returns the bytes. When the last reference to them is dropped, their memory is kept.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Taken {
    fn as_ref(&self) -> &[u8] {
        self.block.get(..self.length).unwrap_or_default()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if let Some(memory) = self.from.upgrade() {
            // What is kept no longer is freed after the lock is released.
            let released = memory.free.lock().add(take(&mut self.block));
            drop(released);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(memory: &ReadMemory) -> Vec<usize> {
        memory.free.lock().blocks.iter().map(Vec::len).collect()
    }

    #[test]
    fn memory_is_used_again() {
        let memory = Arc::new(ReadMemory::default());
        let mut taken = memory.take(100_000);
        taken.as_mut().fill(7);
        let bytes = taken.freeze();
        let part = bytes.slice(5..10);
        drop(bytes);
        assert_eq!(kept(&memory), [] as [usize; 0], "a part is in use");
        drop(part);
        assert_eq!(kept(&memory), [131_072]);
        assert_eq!(memory.take(70_000).as_ref().len(), 70_000);
        assert_eq!(kept(&memory), [131_072], "the same memory, which is dropped again");
        let (much, little) = (memory.take(200_000), memory.take(32_768));
        assert_eq!(kept(&memory), [131_072], "it is too small for one and too large for the other");
        drop((much, little, memory.take(100)));
        assert_eq!(kept(&memory), [131_072, 229_376, 32_768]);
    }

    #[test]
    fn little_memory_is_kept() {
        let memory = Arc::new(ReadMemory::default());
        let taken: Vec<Taken> = (0..40).map(|_| memory.take(1 << 20)).collect();
        drop(taken);
        assert_eq!(kept(&memory).len(), 16);
        assert_eq!(memory.free.lock().bytes, KEPT_BYTES_MAX);
        let last = memory.take(1 << 20);
        drop(memory);
        drop(last);
    }
}
