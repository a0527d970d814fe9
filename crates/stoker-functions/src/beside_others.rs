//! Lets the other tasks of a thread continue during long computations.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs `compute` while other threads take over the tasks of this thread, on a multi-thread runtime. On other runtimes
/// `compute` just runs.
pub fn beside_others<T>(compute: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(compute),
        _ => compute(),
    }
}
