//! Parks native threads while the process forks.
//!
//! A lock that another thread holds at the moment of `fork` stays locked in the child for ever. The libraries that this
//! module uses have global locks, which they hold for microseconds. Between two polls of a task, a thread of the
//! runtime holds no lock, so the threads are parked there.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::exit::detached;
use crate::runtime;

/// How long a fork waits for threads that do not park.
const REST_LIMIT: Duration = Duration::from_secs(1);

/// The pauses that are in effect; several threads may fork at once.
static PAUSES: Mutex<Vec<Arc<Pause>>> = Mutex::new(Vec::new());

#[derive(Default)]
struct Pause {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    resting: usize,
    is_over: bool,
}

impl Pause {
    /// Parks the calling thread until the pause is over.
    fn rest(&self) {
        let mut state = self.state.lock();
        state.resting += 1;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| !state.is_over);
    }

    fn wait_for(&self, num_threads: usize) {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| state.resting < num_threads, REST_LIMIT);
    }

    fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

/// Registers hooks that park this module's threads during `os.fork` and the functions built on it.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let os = py.import("os")?;
    if !os.hasattr("register_at_fork")? {
        return Ok(());
    }
    let hooks = PyDict::new(py);
    hooks.set_item("before", wrap_pyfunction!(before_fork, py)?)?;
    hooks.set_item("after_in_parent", wrap_pyfunction!(after_fork_in_parent, py)?)?;
    hooks.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, py)?)?;
    os.call_method("register_at_fork", (), Some(&hooks))?;
    Ok(())
}

/// Parks all threads of the runtime, each in a task of its own.
#[pyfunction]
fn before_fork(py: Python<'_>) {
    let Some(runtime) = runtime::started() else { return };
    let pause = Arc::new(Pause::default());
    PAUSES.lock().push(pause.clone());
    let num_threads = runtime.metrics().num_workers();
    for _ in 0..num_threads {
        let pause = pause.clone();
        runtime.spawn(async move { pause.rest() });
    }
    detached(py, || pause.wait_for(num_threads));
}

#[pyfunction]
fn after_fork_in_parent() {
    PAUSES.lock().drain(..).for_each(|pause| pause.end());
}

/// Leaks the pauses: the parked threads do not exist in the child, and their locks may be held.
#[pyfunction]
fn after_fork_in_child() {
    std::mem::forget(std::mem::take(&mut *PAUSES.lock()));
}
