//! Memory of batches, from the system in pages as large as it has.
#![expect(unsafe_code, reason = "the standard library has no memory in huge pages; see the safety comments")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

/// Huge pages of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// Smaller memory is not worth huge pages.
const HUGE_MEMORY_MIN: usize = 64 << 10;

/// At most one byte in so many of a region is left over.
const WASTE_DIVISOR: usize = 8;

/// The alignment of memory: a cache line, as Arrow recommends.
const LINE_BYTES: usize = 64;

/// Initialised bytes of a fixed number. The first touch of memory costs a fault for each page: huge pages make that one fault
/// for 2 MiB in place of 512. What is smaller than they are shares a region with more of its length.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    length: usize,
    /// Keeps the bytes.
    _region: Arc<Region>,
}

/// Memory from the system.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: `Memory` is the only one with its bytes, like a `Box<[u8]>`; a region is released by whoever drops it last.
unsafe impl Send for Memory {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Memory {}
// SAFETY: a region does not touch its bytes before it is dropped.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Memory {
    /// Zeros; `None` where the system gives no memory.
    fn try_new(length: usize) -> Option<Self> {
        if length >= HUGE_BYTES { Self::in_region(length, 1)?.pop() } else { Self::small(length) }
    }

    /// As much memory of one length as shares a region: at least one, at most `bytes_max` bytes unless one alone takes more. `None`
    /// where the system gives none.
    pub fn several(length: usize, bytes_max: usize) -> Option<Vec<Self>> {
        if !(HUGE_MEMORY_MIN..WASTE_DIVISOR * HUGE_BYTES).contains(&length) {
            return Some(vec![Self::try_new(length)?]);
        }
        let is_wasteful = |count: &usize| {
            let used = count * length;
            let size = used.next_multiple_of(HUGE_BYTES);
            (size - used) * WASTE_DIVISOR > size
        };
        match (1..).find(|count| !is_wasteful(count)) {
            Some(count) if count == 1 || count * length <= bytes_max => Self::in_region(length, count),
            _ => Some(vec![Self::try_new(length)?]),
        }
    }

    /// Memory from the allocator.
    fn small(length: usize) -> Option<Self> {
        let region = Region::try_new(Layout::from_size_align(length.max(1), LINE_BYTES).ok()?)?;
        Some(Self { base: region.base, length, _region: Arc::new(region) })
    }

    /// Neighbours in a region of whole huge pages.
    fn in_region(length: usize, count: usize) -> Option<Vec<Self>> {
        // The last huge page, too, is then the region's own.
        let stride = length.checked_next_multiple_of(LINE_BYTES)?;
        let size = stride.checked_mul(count)?.checked_next_multiple_of(HUGE_BYTES)?;
        let region = Arc::new(Region::try_new(Layout::from_size_align(size, HUGE_BYTES).ok()?)?);
        // SAFETY: `count` times `stride` bytes lie in the region.
        let base = |index: usize| unsafe { region.base.add(index * stride) };
        Some((0..count).map(|index| Self { base: base(index), length, _region: region.clone() }).collect())
    }
}

impl Region {
    fn try_new(layout: Layout) -> Option<Self> {
        // SAFETY: the sizes of all layouts above are at least 1.
        let base = unsafe { allocate(layout) };
        Some(Self { base: NonNull::new(base)?, layout })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` came from `allocate` with this layout, and nobody has a reference any more.
        unsafe { release(self.base.as_ptr(), self.layout) }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the first `length` bytes at `base` are initialised, and nobody else has them.
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
