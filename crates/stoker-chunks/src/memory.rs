//! Memory of batches, from the system in pages as large as it has.
#![expect(unsafe_code, reason = "the standard library has no memory in huge pages; see the safety comments")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// Huge pages of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// Smaller memory is not worth whole huge pages.
const HUGE_MEMORY_MIN: usize = 4 << 20;

/// The alignment of smaller memory: a cache line, as Arrow recommends.
const LINE_BYTES: usize = 64;

/// Initialised bytes of a fixed number. The first touch of memory costs a fault for each page: huge pages make that one fault
/// for 2 MiB in place of 512.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    length: usize,
    layout: Layout,
}

// SAFETY: `Memory` owns its bytes, like a `Box<[u8]>`.
unsafe impl Send for Memory {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// Zeros.
    pub fn new(length: usize) -> Self {
        let align = if length >= HUGE_MEMORY_MIN { HUGE_BYTES } else { LINE_BYTES };
        // Whole huge pages: the last one, too, is then the memory's own.
        let size = if align == HUGE_BYTES { length.next_multiple_of(HUGE_BYTES) } else { length.max(1) };
        let Ok(layout) = Layout::from_size_align(size, align) else {
            handle_alloc_error(Layout::new::<u8>());
        };
        // SAFETY: the size is not zero.
        let base = unsafe { allocate(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, length, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `base` came from `allocate` with this layout, and nobody has a reference any more.
        unsafe { release(self.base.as_ptr(), self.layout) }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes at `base` are initialised and owned by `self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` excludes other references.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

/// # Safety
/// The layout's size must not be zero.
unsafe fn allocate(layout: Layout) -> *mut u8 {
    #[cfg(target_os = "linux")]
    if layout.align() == HUGE_BYTES {
        return huge::map(layout.size());
    }
    // SAFETY: as the caller promises.
    unsafe { alloc_zeroed(layout) }
}

/// # Safety
/// `base` must come from [`allocate`] with this layout, and not be used any more.
unsafe fn release(base: *mut u8, layout: Layout) {
    #[cfg(target_os = "linux")]
    if layout.align() == HUGE_BYTES {
        // SAFETY: as the caller promises.
        unsafe { huge::unmap(base, layout.size()) };
        return;
    }
    // SAFETY: as the caller promises.
    unsafe { dealloc(base, layout) }
}

/// Memory straight from the system: an allocator may have touched its own in small pages before.
#[cfg(target_os = "linux")]
mod huge {
    use std::ptr;

    use super::HUGE_BYTES;

    /// `size` zeros that begin at a multiple of 2 MiB; null when there is no memory. `size` is a multiple of it as well.
    pub fn map(size: usize) -> *mut u8 {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let Some(total) = size.checked_add(HUGE_BYTES) else { return ptr::null_mut() };
        // SAFETY: a new mapping at an address that the system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), total, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE_BYTES);
        let base = start.wrapping_add(before);
        // SAFETY: the parts of the mapping before and after `size` bytes at `base`, which nobody uses. Advice changes no content,
        // and a system that does not take it gives small pages.
        unsafe {
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if total - before > size {
                libc::munmap(base.wrapping_add(size).cast(), total - before - size);
            }
            libc::madvise(base.cast(), size, libc::MADV_HUGEPAGE);
        }
        base
    }

    /// # Safety
    /// `base` must come from [`map`] with this size, and not be used any more.
    pub unsafe fn unmap(base: *mut u8, size: usize) {
        // SAFETY: as the caller promises.
        unsafe { libc::munmap(base.cast(), size) };
    }
}
