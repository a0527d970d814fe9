//! Memory that decoding threads reuse.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fast_image_resize::Resizer;

/// Buffers over this are given back after use, so that one large image does not stay for ever.
const KEPT_BYTES: usize = 32 << 20;

/// The buffers of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The decoded image.
    pub pixels: Vec<u8>,
    /// The region at the size that it has in the tensor.
    pub resized: Vec<u8>,
    /// The whole tensor, where the region does not fill it.
    pub canvas: Vec<u8>,
    pub resizer: Resizer,
}

/// The buffers that no thread uses now; never more than there were threads at once.
///
/// A process may fork while they are lent: the lock of the standard library has no table that a child would find locked.
#[derive(Default)]
pub(crate) struct ScratchPool(Mutex<Vec<Scratch>>);

/// Buffers that go back when they are dropped.
pub(crate) struct Lent<'a> {
    pool: &'a ScratchPool,
    pub scratch: Scratch,
}

impl ScratchPool {
    fn free(&self) -> MutexGuard<'_, Vec<Scratch>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn lend(&self) -> Lent<'_> {
        Lent { pool: self, scratch: self.free().pop().unwrap_or_default() }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.pixels.capacity() > KEPT_BYTES {
            scratch.pixels = Vec::new();
        }
        if scratch.resizer.size_of_internal_buffers() > KEPT_BYTES {
            scratch.resizer.reset_internal_buffers();
        }
        self.pool.free().push(scratch);
    }
}
