//! The memory of one column of one batch, filled row by row from anywhere.
#![expect(unsafe_code, reason = "rows of one buffer are filled by several threads at once; see the safety comments")]

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow_buffer::Buffer;
use bytes::Bytes;

use crate::pool::Pooled;
use crate::{BufferPool, Error, Result};

/// `num_rows` slots of `row_bytes` bytes. Each slot is claimed once, filled by whoever claimed it, and the whole becomes an
/// Arrow buffer when all are filled.
#[derive(Debug)]
pub struct Slots {
    base: *mut u8,
    memory: Pooled,
    row_bytes: usize,
    claimed: Box<[AtomicBool]>,
    filled: AtomicUsize,
}

// SAFETY: `base` points into `memory`, which `Slots` owns and does not touch before `freeze`. Until then the bytes of a slot are
// only reached through the one `SlotMut` that claimed it; `claimed` is atomic, so no two threads get the same slot.
unsafe impl Send for Slots {}
// SAFETY: as above; shared references only claim slots.
unsafe impl Sync for Slots {}

impl Slots {
    /// Slots in memory from a pool.
    pub fn new(pool: &BufferPool, num_rows: usize, row_bytes: usize) -> Arc<Self> {
        let mut memory = pool.take(num_rows * row_bytes);
        let base = memory.as_mut_ptr();
        let claimed = (0..num_rows).map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { base, memory, row_bytes, claimed, filled: AtomicUsize::new(0) })
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// The slot of a row, to be filled.
    ///
    /// # Errors
    /// [`Error::Internal`] when it was claimed before or does not exist.
    pub fn claim(self: &Arc<Self>, row: usize) -> Result<SlotMut> {
        match self.claimed.get(row) {
            Some(claimed) if !claimed.swap(true, Ordering::Relaxed) => Ok(SlotMut { slots: self.clone(), row }),
            Some(_) => Err(Error::Internal { reason: format!("slot {row} was claimed twice") }),
            None => Err(Error::Internal { reason: format!("slot {row} of {} does not exist", self.claimed.len()) }),
        }
    }

    /// The filled memory as an Arrow buffer, which returns to the pool when it is dropped.
    ///
    /// # Errors
    /// [`Error::Internal`] when a slot is not filled.
    pub fn freeze(self: Arc<Self>) -> Result<Buffer> {
        let slots = Arc::try_unwrap(self).map_err(|slots| Error::Internal {
            reason: format!("slots of {} rows are still being filled", slots.claimed.len()),
        })?;
        let filled = slots.filled.load(Ordering::Acquire);
        if filled != slots.claimed.len() {
            return Err(Error::Internal { reason: format!("{filled} of {} slots are filled", slots.claimed.len()) });
        }
        Ok(Buffer::from(Bytes::from_owner(slots.memory)))
    }
}

/// A claimed slot: exclusive access to the bytes of one row.
#[derive(Debug)]
pub struct SlotMut {
    slots: Arc<Slots>,
    row: usize,
}

impl SlotMut {
    /// Declares the slot filled.
    pub fn fill(self) {
        self.slots.filled.fetch_add(1, Ordering::Release);
    }
}

impl Deref for SlotMut {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let start = self.row * self.slots.row_bytes;
        // SAFETY: `row < claimed.len()`, so the range lies inside `memory`, whose bytes are initialised; this `SlotMut` is the
        // only one for the row, and `Slots` cannot be frozen while it holds an `Arc`.
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
