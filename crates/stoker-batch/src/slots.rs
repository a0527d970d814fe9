//! The memory of one column of one batch, whose rows may be filled in any order.
#![expect(unsafe_code, reason = "rows of one buffer are filled by several threads at once; see the safety comments")]

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use arrow_buffer::Buffer;

use crate::{BufferPool, Error, Pooled, Result};

/// `num_rows` slots of `row_bytes` bytes. Each slot is claimed once, alone or with its neighbours, and filled through its
/// claim. Once all slots are filled, the memory becomes an Arrow buffer.
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
// a slot are only accessed through the one `SlotMut` that has claimed it; `states` are atomic, so no two threads can
// claim the same slot.
unsafe impl Send for Slots {}
// SAFETY: as above; shared references can only claim slots.
unsafe impl Sync for Slots {}

impl Slots {
    /// Makes slots in memory from a pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the operating system has no memory.
    pub fn try_new(pool: &BufferPool, num_rows: usize, row_bytes: usize) -> Result<Arc<Self>> {
        Self::with_capacity(pool, num_rows, num_rows, row_bytes)
    }

    /// Like [`Slots::try_new`], in memory that is large enough for `capacity` slots, so that slots of other numbers of
    /// rows may reuse it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the operating system has no memory.
    pub fn with_capacity(pool: &BufferPool, num_rows: usize, capacity: usize, row_bytes: usize) -> Result<Arc<Self>> {
        let bytes = |rows: usize| rows.checked_mul(row_bytes).ok_or(Error::OutOfMemory { bytes: usize::MAX });
        let mut memory = pool.take_part(bytes(num_rows)?, bytes(capacity)?)?;
        let base = memory.as_mut_ptr();
        let states = (0..num_rows).map(|_| AtomicU8::new(FREE)).collect();
        Ok(Arc::new(Self { base, memory, row_bytes, states }))
    }

    /// Claims the slot of a row.
    ///
    /// # Errors
    /// [`Error::Internal`] if the slot was claimed before or does not exist.
    pub fn claim(self: &Arc<Self>, row: usize) -> Result<SlotMut> {
        self.claim_rows(row..row.saturating_add(1))
    }

    /// Claims the slots of neighbouring rows: all of them, or none if there is an error.
    ///
    /// # Errors
    /// [`Error::Internal`] if a slot was claimed before or does not exist, or if the range is empty.
    pub fn claim_rows(self: &Arc<Self>, rows: Range<usize>) -> Result<SlotMut> {
        self.take(rows, FREE)
    }

    /// Claims the slot of a row that is filled, to replace its content.
    ///
    /// # Errors
    /// [`Error::Internal`] if the slot is not filled or does not exist.
    pub fn reopen(self: &Arc<Self>, row: usize) -> Result<SlotMut> {
        self.take(row..row.saturating_add(1), FILLED)
    }

    /// Claims slots that must be in this state.
    fn take(self: &Arc<Self>, rows: Range<usize>, state: u8) -> Result<SlotMut> {
        let Some(slots) = self.states.get(rows.clone()).filter(|slots| !slots.is_empty()) else {
            let reason = format!("slots {rows:?} of {} are none, or do not exist", self.states.len());
            return Err(Error::Internal { reason });
        };
        for (index, slot) in slots.iter().enumerate() {
            if let Err(found) = slot.compare_exchange(state, CLAIMED, Ordering::Acquire, Ordering::Relaxed) {
                slots[..index].iter().for_each(|slot| slot.store(state, Ordering::Release));
                let (row, found) = (rows.start + index, ["free", "claimed", "filled"][usize::from(found.min(FILLED))]);
                return Err(Error::Internal { reason: format!("slot {row} is wanted and is {found}") });
            }
        }
        Ok(SlotMut { slots: self.clone(), rows })
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

/// Claimed slots of neighbouring rows, at least one: exclusive access to the bytes of these rows, which lie one after
/// the other.
#[derive(Debug)]
pub struct SlotMut {
    slots: Arc<Slots>,
    rows: Range<usize>,
}

impl SlotMut {
    /// The number of rows, at least 1.
    pub fn num_rows(&self) -> usize {
        self.rows.len()
    }

    /// The size of one row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.slots.row_bytes
    }

    /// Keeps the first `at` rows, and returns the others.
    ///
    /// # Errors
    /// [`Error::Internal`] if one of the two parts would be empty. The rows stay together then.
    pub fn split_off(&mut self, at: usize) -> Result<SlotMut> {
        if at == 0 || at >= self.rows.len() {
            return Err(Error::Internal { reason: format!("{} slots cannot be split at {at}", self.rows.len()) });
        }
        let middle = self.rows.start + at;
        let rows = middle..self.rows.end;
        self.rows.end = middle;
        Ok(SlotMut { slots: self.slots.clone(), rows })
    }

    /// Marks the slots as filled.
    pub fn fill(self) {
        self.slots.states[self.rows].iter().for_each(|state| state.store(FILLED, Ordering::Release));
    }

    /// The offset of the first byte in the memory of all slots, and the number of bytes.
    fn span(&self) -> (usize, usize) {
        (self.rows.start * self.slots.row_bytes, self.rows.len() * self.slots.row_bytes)
    }
}

impl Deref for SlotMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (start, length) = self.span();
        // SAFETY: `rows` lies inside `states`, so the range lies inside `memory`, whose bytes are initialised. Each row
        // belongs to one `SlotMut` at a time: a claim takes only rows that no other one has, and `split_off` divides the
        // rows. So this `SlotMut` is the only one for its rows, and `Slots` cannot be frozen while it holds an `Arc`.
        unsafe { std::slice::from_raw_parts(self.slots.base.add(start), length) }
    }
}

impl DerefMut for SlotMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, length) = self.span();
        // SAFETY: as for `deref`, and `&mut self` excludes other references from this `SlotMut`.
        unsafe { std::slice::from_raw_parts_mut(self.slots.base.add(start), length) }
    }
}
