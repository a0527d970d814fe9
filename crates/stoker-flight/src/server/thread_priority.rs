//! The priority of threads that compute for queries.
#![cfg_attr(
    target_os = "linux",
    expect(unsafe_code, reason = "the standard library has no priorities of threads; see the safety comment")
)]

/// What is added to the niceness of the process: where a processor is wanted by both, a thread of a stream gets nine tenths of it (the
/// scheduler's weights are 1,024 and 110).
///
/// Measured by `renice` of the threads `stoker-query`, beside four clients that sent statements of `test_hostile_statements.py` without a pause,
/// on two cores: the 99th percentile of the waits of a loop over batches of 8 rows of uint8[3, 64, 64], 12 s each, was 6.5 ms at 0, 6.3 ms at 5, 3.2 ms at 10, and 1.9 to 2.6 ms alone; it read 38,000, 35,000, 67,000, and alone 74,000 to 95,000 batches.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lets other threads go before the calling one, and before those that it starts, where processors are short. On systems other than Linux
/// niceness is of whole processes, and nothing changes.
pub(crate) fn go_after_others() {
    #[cfg(target_os = "linux")]
    // SAFETY: takes a number, and changes the calling thread alone.
    unsafe {
        libc::nice(NICENESS);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{NICENESS, go_after_others};

    /// The niceness of the calling thread: field 19 of its `stat` (proc(5)), the 17th after its name.
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
