//! Measures the memory that a target holds.
#![expect(unsafe_code, reason = "the trait of allocators is unsafe; see the safety comments")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::watch::Watch;

/// The system's allocator. It counts the bytes that the thread of a target holds, and refuses more than a limit. A test
/// program makes it its global allocator.
pub struct Meter;

/// The count of one thread. The type has no destructor, so it can be used while a thread ends.
#[derive(Clone, Copy)]
struct Count {
    /// Bytes that were allocated on this thread since the start, less those that were freed on it.
    held: i64,
    /// The largest value of `held`.
    peak: i64,
    /// The limit of `held`, and the target whose input is shown when it is reached.
    limit: Option<(i64, &'static Watch)>,
}

thread_local! {
    static COUNT: Cell<Count> = const { Cell::new(Count { held: 0, peak: 0, limit: None }) };
}

/// Starts to count on this thread.
pub(crate) fn start(limit: usize, watch: &'static Watch) {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    COUNT.set(Count { held: 0, peak: 0, limit: Some((limit, watch)) });
}

/// Ends the count. Returns the most bytes that were held at once since the start.
pub(crate) fn stop() -> usize {
    let peak = COUNT.get().peak;
    COUNT.set(Count { held: 0, peak: 0, limit: None });
    usize::try_from(peak).unwrap_or(0)
}

/// Returns whether [`Meter`] is the allocator of this program.
pub(crate) fn is_used() -> bool {
    let before = COUNT.get().held;
    let probe = std::hint::black_box(Box::new(0u64));
    let is_used = COUNT.get().held != before;
    drop(probe);
    is_used
}

/// Counts an allocation of `bytes` bytes, or a release if the number is negative. Returns whether it is allowed.
fn count(bytes: i64) -> bool {
    let mut count = COUNT.get();
    let held = count.held.saturating_add(bytes);
    if let Some((limit, watch)) = count.limit.filter(|(limit, _)| bytes > 0 && held > *limit) {
        // What is written here may allocate memory, which is then not counted.
        COUNT.set(Count { limit: None, ..count });
        watch.show(format_args!("it would hold {held} bytes; the limit is {limit}"));
        COUNT.set(count);
        return false;
    }
    count.held = held;
    count.peak = count.peak.max(held);
    COUNT.set(count);
    true
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: Each method passes its arguments to the same method of the system's allocator, whose contract is the same, or
// returns null, which means that there is no memory. The counting neither allocates memory nor unwinds.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(signed(layout.size())) {
            return std::ptr::null_mut();
        }
        // SAFETY: The caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !count(signed(layout.size())) {
            return std::ptr::null_mut();
        }
        // SAFETY: The caller fulfils the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: The caller fulfils the contract of `dealloc`; the memory is of the system's allocator.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !count(signed(size).saturating_sub(signed(layout.size()))) {
            return std::ptr::null_mut();
        }
        // SAFETY: The caller fulfils the contract of `realloc`; the memory is of the system's allocator.
        unsafe { System.realloc(memory, layout, size) }
    }
}
