//! Keeps threads that are in native code safe while the interpreter shuts down.
//!
//! The interpreter does not wait for daemon threads. When a daemon thread returns from native code during the shutdown,
//! Python 3.13 and older terminate it by unwinding its stack, and a frame of Rust or C++ on that stack aborts the
//! process. Such a thread therefore parks here until the process is gone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The thread that shuts the interpreter down, set when the shutdown begins.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// The number of threads that are returning to Python from native code.
static NUM_RETURNING: AtomicUsize = AtomicUsize::new(0);

/// How long the shutdown waits for these threads.
const RETURN_LIMIT: Duration = Duration::from_secs(1);

/// Registers an `atexit` function. Python runs it after all non-daemon threads have ended.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    py.import("atexit")?.call_method1("register", (wrap_pyfunction!(ends, py)?,))?;
    Ok(())
}

#[pyfunction]
fn ends(py: Python<'_>) {
    ENDING.get_or_init(|| thread::current().id());
    py.detach(|| {
        let begun = Instant::now();
        while NUM_RETURNING.load(Ordering::SeqCst) > 0 && begun.elapsed() < RETURN_LIMIT {
            thread::yield_now();
        }
    });
}

/// Runs `work` without holding the interpreter lock. A thread other than the one that shuts the interpreter down does
/// not return if the shutdown began meanwhile; it parks.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let done = py.detach(|| {
        let done = work();
        NUM_RETURNING.fetch_add(1, Ordering::SeqCst);
        if ENDING.get().is_some_and(|ending| *ending != thread::current().id()) {
            NUM_RETURNING.fetch_sub(1, Ordering::SeqCst);
            loop {
                thread::park();
            }
        }
        done
    });
    NUM_RETURNING.fetch_sub(1, Ordering::SeqCst);
    done
}
