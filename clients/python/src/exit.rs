//! Threads that are in native code while the interpreter ends.
//!
//! Daemon threads are not waited for. One that comes back from native code by then is ended by Python 3.13 and older in a way that no
//! frame of Rust or C++ survives: the process aborts. It rests instead, until the process is gone.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// The thread that ends the interpreter, once it does.
static ENDING: OnceLock<ThreadId> = OnceLock::new();

/// Threads that are on their way back to Python.
static NUM_RETURNING: AtomicUsize = AtomicUsize::new(0);

/// How long the end waits for them.
const RETURN_LIMIT: Duration = Duration::from_secs(1);

/// Has Python tell when it ends. Threads that are no daemons have ended before.
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

/// Runs work without holding the interpreter lock.
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
