//! Buffers that decoding threads reuse.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fast_image_resize::Resizer;

use crate::Decompressor;

/// The size in bytes from which a buffer is freed after use, so that a large image does not hold its memory forever.
const KEPT_BYTES: usize = 32 << 20;

/// The buffers of one thread.
#[derive(Default)]
pub(crate) struct Scratch {
    /// The decoded image.
    pub pixels: Vec<u8>,
    /// The resized region, at its size in the tensor.
    pub resized: Vec<u8>,
    /// The pixels of the whole tensor, used where the region does not fill it or is rotated.
    pub canvas: Vec<u8>,
    pub resizer: Resizer,
    /// libjpeg-turbo's decoder, once it was used.
    pub decompressor: Option<Decompressor>,
}

/// The buffers that no thread uses now. The pool never holds more of them than threads used at the same time.
///
/// A process may fork while buffers are in use. The pool has the standard library's mutex, which has no global table
/// that the child process could find locked.
#[derive(Default)]
pub(crate) struct ScratchPool(Mutex<Vec<Scratch>>);

/// Buffers of the pool that return to it when they are dropped.
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
