//! The memory of one column of one batch, whose rows may be filled in any order.
#![expect(unsafe_code, reason = "rows of one buffer are filled by several threads at once; see the safety comments")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arrow_buffer::Buffer;

use crate::{BufferPool, Error, Pooled, Result};

/// `num_rows` slots of `row_bytes` bytes. Each slot is claimed once, and filled through its claim. Once all slots are
/// filled, the memory becomes an Arrow buffer.
#[derive(Debug)]
pub struct Slots {
    base: *mut u8,
    memory: Pooled,
    row_bytes: usize,
    /// For each slot, [`FREE`], [`CLAIMED`] or [`FILLED`].
    states: Box<[AtomicU8]>,
}

const FREE: u8 = 0;
const CLAIMED: u8 = 1;
const FILLED: u8 = 2;

// SAFETY: `base` points into `memory`, which `Slots` owns and does not access before `freeze`. Until then the bytes of
// a slot are only accessed through the one `SlotMut` that claimed it; `states` are atomic, so no two threads can claim
// the same slot.
unsafe impl Send for Slots {}
// SAFETY: as above; shared references can only claim slots.
unsafe impl Sync for Slots {}

impl Slots {
    /// Makes slots in memory from a pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the operating system has no memory.
    pub fn try_new(pool: &BufferPool, num_rows: usize, row_bytes: usize) -> Result<Arc<Self>> {
        let bytes = num_rows.checked_mul(row_bytes).ok_or(Error::OutOfMemory { bytes: usize::MAX })?;
        let mut memory = pool.take(bytes)?;
        let base = memory.as_mut_ptr();
        let states = (0..num_rows).map(|_| AtomicU8::new(FREE)).collect();
        Ok(Arc::new(Self { base, memory, row_bytes, states }))
    }

    /// Claims the slot of a row.
    ///
    /// # Errors
    /// [`Error::Internal`] if the slot was claimed before or does not exist.
    pub fn claim(self: &Arc<Self>, row: usize) -> Result<SlotMut> {
        self.take(row, FREE)
    }

    /// Claims the slot of a row that is filled, to replace its content.
    ///
    /// # Errors
    /// [`Error::Internal`] if the slot is not filled or does not exist.
    pub fn reopen(self: &Arc<Self>, row: usize) -> Result<SlotMut> {
        self.take(row, FILLED)
    }

    /// Claims a slot that must be in this state.
    fn take(self: &Arc<Self>, row: usize, state: u8) -> Result<SlotMut> {
        let Some(slot) = self.states.get(row) else {
            let reason = format!("slot {row} of {} does not exist", self.states.len());
            return Err(Error::Internal { reason });
        };
        match slot.compare_exchange(state, CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(SlotMut { slots: self.clone(), row }),
            Err(found) => {
                let found = ["free", "claimed", "filled"][usize::from(found.min(FILLED))];
                Err(Error::Internal { reason: format!("slot {row} is wanted and is {found}") })
            }
        }
    }

    /// Returns the filled memory as an Arrow buffer. When the buffer is dropped, the memory returns to the pool.
    ///
    /// # Errors
    /// [`Error::Internal`] if a slot is not filled.
    pub fn freeze(self: Arc<Self>) -> Result<Buffer> {
        let slots = Arc::try_unwrap(self).map_err(|slots| Error::Internal {
            reason: format!("slots of {} rows are still being filled", slots.states.len()),
        })?;
        let filled = slots.states.iter().filter(|state| state.load(Ordering::Acquire) == FILLED).count();
        if filled != slots.states.len() {
            return Err(Error::Internal { reason: format!("{filled} of {} slots are filled", slots.states.len()) });
        }
        Ok(slots.memory.freeze())
    }
}

/// A claimed slot: exclusive access to the bytes of one row.
#[derive(Debug)]
pub struct SlotMut {
    slots: Arc<Slots>,
    row: usize,
}

impl SlotMut {
    /// Marks the slot as filled.
    pub fn fill(self) {
        self.slots.states[self.row].store(FILLED, Ordering::Release);
    }
}

impl Deref for SlotMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.row * self.slots.row_bytes;
        // SAFETY: `row < states.len()`, so the range lies inside `memory`, whose bytes are initialised. This `SlotMut`
        // is the only one for the row, and `Slots` cannot be frozen while it holds an `Arc`.
        unsafe { std::slice::from_raw_parts(self.slots.base.add(start), self.slots.row_bytes) }
    }
}

impl DerefMut for SlotMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let start = self.row * self.slots.row_bytes;
        // SAFETY: as for `deref`, and `&mut self` excludes other references from this `SlotMut`.
        unsafe { std::slice::from_raw_parts_mut(self.slots.base.add(start), self.slots.row_bytes) }
    }
}
