//! The priority of query threads.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "the standard library has no priorities of threads; see the safety comment")
)]

/// The increment of the niceness of query threads. Where a query thread and a stream's thread compete for a processor,
/// the stream's thread gets nine tenths of it (the scheduler's weights are 1,024 and 110).
///
/// Measured by `renice` of the threads `stoker-query`, while four clients sent statements of
/// `test_hostile_statements.py` without a pause, on two cores, for 12 s each. A loop over batches of 8 rows of
/// uint8[3, 64, 64] waited for a batch, in the 99th percentile, 6.5 ms at niceness 0, 6.3 ms at 5 and 3.2 ms at 10, and
/// 1.9 to 2.6 ms without the queries. It read 38,000, 35,000 and 67,000 batches, and 74,000 to 95,000 without the
/// queries.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lowers the priority of the calling thread, and of threads that it starts later, so that other threads run first
/// where processors are scarce. Does nothing on systems other than Linux, where niceness belongs to whole processes.
pub(crate) fn go_after_others() {
    #[cfg(target_os = "linux")]
    // SAFETY: `nice` takes a number and no pointer, and changes the calling thread only.
    unsafe {
        libc::nice(NICENESS);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::{NICENESS, go_after_others};

    /// Reads the niceness of the calling thread: field 19 of its `stat` (proc(5)), the 17th after its name.
    fn niceness() -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("a thread of Linux");
        let after_name = stat.rsplit(") ").next().expect("fields");
        after_name.split(' ').nth(16).and_then(|field| field.parse().ok()).expect("a number")
    }

    #[test]
    fn a_thread_goes_after_those_that_it_did_not_start() {
        let before = niceness();
        let changed = || {
            go_after_others();
            let started = std::thread::scope(|scope| scope.spawn(niceness).join());
            (niceness(), started.expect("a number"))
        };
        let wanted = (before + NICENESS).min(19);
        assert_eq!(std::thread::spawn(changed).join().expect("two numbers"), (wanted, wanted));
        assert_eq!(niceness(), before);
    }
}
