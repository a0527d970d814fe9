//! Memory for batches, in huge pages if the operating system has them and hands them out fast ([`PageChoice`]).
#![expect(unsafe_code, reason = "the standard library has no memory in huge pages; see the safety comments")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;

use crate::page_choice::{PageChoice, Pages};

/// The pages of the memory of this process.
static PAGES: PageChoice = PageChoice::new();

/// The size of huge pages in bytes: of x86-64, and of AArch64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;

/// The minimum size of memory in huge pages, in bytes: for less they are not worth it.
const HUGE_MEMORY_MIN: usize = 64 << 10;

/// At most this fraction of a region (one eighth) may be unused.
const WASTE_DIVISOR: usize = 8;

/// The alignment of memory in bytes: a cache line, as Arrow recommends.
const LINE_BYTES: usize = 64;

/// The bytes of new memory for which the time of the system is measured: one huge page, or some small ones.
const MEASURED_BYTES: usize = 512 << 10;

/// The size of small pages in bytes.
const SMALL_BYTES: usize = 4 << 10;

/// A fixed number of initialised bytes. The first access to memory costs a page fault per page: with huge pages, one
/// fault per 2 MiB rather than 512. Memory that is smaller than a huge page shares a region with other memory of its
/// length.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    length: usize,
    /// Keeps the region with the bytes alive.
    _region: Arc<Region>,
}

/// Memory from the allocator or the operating system, which is released when it is dropped.
#[derive(Debug)]
struct Region {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: each `Memory` has exclusive access to its bytes, like a `Box<[u8]>`; the last `Memory` of a region releases
// it.
unsafe impl Send for Memory {}
// SAFETY: as above; shared references can only read.
unsafe impl Sync for Memory {}
// SAFETY: a region does not access its bytes before it is dropped.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Memory {
    /// Returns zeroed memory; `None` if the operating system has none.
    fn try_new(length: usize) -> Option<Self> {
        if length >= HUGE_BYTES { Self::in_region(length, 1)?.pop() } else { Self::small(length) }
    }

    /// Returns as many pieces of memory of one length as share a region: at least one, and together at most `bytes_max`
    /// bytes unless a single one is larger. `None` if the operating system has no memory.
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

    /// Returns memory from the allocator.
    fn small(length: usize) -> Option<Self> {
        let region = Region::try_new(Layout::from_size_align(length.max(1), LINE_BYTES).ok()?, Pages::Small)?;
        Some(Self { base: region.base, length, _region: Arc::new(region) })
    }

    /// Returns adjacent pieces of memory in a region of whole huge pages.
    fn in_region(length: usize, count: usize) -> Option<Vec<Self>> {
        // The size is rounded up, so that the last huge page belongs to the region too.
        let stride = length.checked_next_multiple_of(LINE_BYTES)?;
        let size = stride.checked_mul(count)?.checked_next_multiple_of(HUGE_BYTES)?;
        let pages = PAGES.next();
        let mut region = Region::try_new(Layout::from_size_align(size, HUGE_BYTES).ok()?, pages)?;
        if let Some(nanos) = region.nanos_of_pages(pages) {
            PAGES.measured(pages, nanos);
        }
        let region = Arc::new(region);
        // SAFETY: the region has at least `count * stride` bytes.
        let base = |index: usize| unsafe { region.base.add(index * stride) };
        Some((0..count).map(|index| Self { base: base(index), length, _region: region.clone() }).collect())
    }
}

impl Region {
    fn try_new(layout: Layout, pages: Pages) -> Option<Self> {
        // SAFETY: all layouts above have a size of at least 1.
        let base = unsafe { allocate(layout, pages) };
        Some(Self { base: NonNull::new(base)?, layout })
    }

    /// Makes the system hand out the first pages of new memory, and returns the processor time that it took, in
    /// nanoseconds per MiB. Returns `None` if the time cannot be measured.
    fn nanos_of_pages(&mut self, pages: Pages) -> Option<f64> {
        let begun = cpu_nanos()?;
        let bytes = MEASURED_BYTES.min(self.layout.size());
        // The first byte brings the whole of a huge page.
        let (step, brought) = match pages {
            Pages::Huge => (bytes, HUGE_BYTES),
            Pages::Small => (SMALL_BYTES, bytes),
        };
        for offset in (0..bytes).step_by(step) {
            // SAFETY: the offset is within the region, which nothing else uses yet. Its bytes are zero.
            unsafe { self.base.add(offset).write_volatile(0) };
        }
        Some((cpu_nanos()? - begun) * (1 << 20) as f64 / brought as f64)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: `base` came from `allocate` with this layout, and no reference to the bytes exists any more.
        unsafe { release(self.base.as_ptr(), self.layout) }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the `length` bytes at `base` are initialised, and no other `Memory` has access to them.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` excludes other references.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

/// Returns the processor time of this thread in nanoseconds. Other threads that take the processor meanwhile do not
/// count.
#[cfg(all(target_os = "linux", not(miri)))]
fn cpu_nanos() -> Option<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `time`, and to nothing else.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    (status == 0).then_some(time.tv_sec as f64 * 1e9 + time.tv_nsec as f64)
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn cpu_nanos() -> Option<f64> {
    None
}

/// # Safety
/// The layout's size must not be zero.
unsafe fn allocate(layout: Layout, pages: Pages) -> *mut u8 {
    #[cfg(all(target_os = "linux", not(miri)))]
    if layout.align() == HUGE_BYTES {
        return huge::map(layout.size(), pages);
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = pages;
    // SAFETY: the caller guarantees that the size is not zero.
    unsafe { alloc_zeroed(layout) }
}

/// # Safety
/// `base` must come from [`allocate`] with this layout, and not be used any more.
unsafe fn release(base: *mut u8, layout: Layout) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if layout.align() == HUGE_BYTES {
        // SAFETY: the caller guarantees what `huge::unmap` requires.
        unsafe { huge::unmap(base, layout.size()) };
        return;
    }
    // SAFETY: the caller guarantees what `dealloc` requires.
    unsafe { dealloc(base, layout) }
}

/// Memory directly from the operating system: an allocator's memory may already be mapped in small pages. Miri cannot
/// unmap a part of a mapping, and gets memory from the allocator.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use std::ptr;

    use super::{HUGE_BYTES, Pages};

    /// Maps `size` zeroed bytes at a multiple of 2 MiB; returns null if there is no memory. `size` must be a multiple
    /// of 2 MiB.
    pub fn map(size: usize, pages: Pages) -> *mut u8 {
        let advice = match pages {
            Pages::Huge => libc::MADV_HUGEPAGE,
            Pages::Small => libc::MADV_NOHUGEPAGE,
        };
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let Some(total) = size.checked_add(HUGE_BYTES) else { return ptr::null_mut() };
        // SAFETY: this makes a new mapping at an address that the operating system chooses.
        let start = unsafe { libc::mmap(ptr::null_mut(), total, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        let start = start.cast::<u8>();
        let before = start.align_offset(HUGE_BYTES);
        let base = start.wrapping_add(before);
        // SAFETY: `munmap` gets the parts of the new mapping before and after the `size` bytes at `base`, which nothing
        // uses. `madvise` does not change the content; if the system ignores it, the pages are small.
        unsafe {
            if before > 0 {
                libc::munmap(start.cast(), before);
            }
            if total - before > size {
                libc::munmap(base.wrapping_add(size).cast(), total - before - size);
            }
            libc::madvise(base.cast(), size, advice);
        }
        base
    }

    /// # Safety
    /// `base` must come from [`map`] with this size, and not be used any more.
    pub unsafe fn unmap(base: *mut u8, size: usize) {
        // SAFETY: the caller guarantees that this is a mapping of `map` that is not used any more.
        unsafe { libc::munmap(base.cast(), size) };
    }
}
