//! Tests of batches and their memory.

use tokio::runtime::Builder;

mod budget;
mod interleave_column;
mod pool;
mod stalls;
mod steps;

/// Runs a test on a runtime.
fn run<T>(future: impl Future<Output = T>) -> T {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime").block_on(future)
}
