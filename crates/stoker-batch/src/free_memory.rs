//! The memory that a pool keeps for reuse.

use std::collections::BTreeMap;

use crate::memory::Memory;

/// Memory that is not used. Adding, taking and releasing each take a time that grows with the logarithm of the number
/// of pieces.
#[derive(Debug, Default)]
pub(crate) struct FreeMemory {
    /// Each piece by its length and the number with which it was added. Numbers ascend.
    pieces: BTreeMap<(usize, u64), Memory>,
    /// The length of the piece of each number.
    lengths: BTreeMap<u64, usize>,
    num_added: u64,
    bytes: usize,
}

impl FreeMemory {
    /// The number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether there is a piece of `length` to `length_max` bytes.
    pub fn has(&self, length: usize, length_max: usize) -> bool {
        self.pieces.range((length, 0)..=(length_max, u64::MAX)).next().is_some()
    }

    /// Adds a piece, which is the newest one then.
    pub fn add(&mut self, memory: Memory) {
        let (number, length) = (self.num_added, memory.len());
        self.num_added += 1;
        self.bytes += length;
        self.lengths.insert(number, length);
        self.pieces.insert((length, number), memory);
    }

    /// Takes a piece of `length` to `length_max` bytes: of the shortest ones the newest, which is the likeliest to be in a
    /// processor's cache.
    pub fn take(&mut self, length: usize, length_max: usize) -> Option<Memory> {
        let (&(shortest, _), _) = self.pieces.range((length, 0)..=(length_max, u64::MAX)).next()?;
        let (&(_, number), _) = self.pieces.range((shortest, 0)..=(shortest, u64::MAX)).next_back()?;
        self.lengths.remove(&number);
        self.remove(shortest, number)
    }

    /// Takes the oldest piece of any length.
    pub fn take_oldest(&mut self) -> Option<Memory> {
        let (number, length) = self.lengths.pop_first()?;
        self.remove(length, number)
    }

    fn remove(&mut self, length: usize, number: u64) -> Option<Memory> {
        let memory = self.pieces.remove(&(length, number))?;
        self.bytes -= length;
        Some(memory)
    }
}
