//! One tokio runtime per process, and waiting on it without holding the interpreter lock.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_types::ErrorKind;
use tokio::runtime::{Builder, Runtime};

use crate::exceptions::error;

/// How often a waiting thread looks for signals such as Ctrl-C.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(100);

/// The runtime and the process that started its threads.
static RUNTIME: Mutex<Option<(u32, &'static Runtime)>> = Mutex::new(None);

/// This process's runtime, started on first use.
///
/// Threads do not survive `fork`: a child gets a runtime of its own, and the parent's is left alone, because stopping it
/// would wait for threads that do not exist. Runtimes are never dropped; there is one per process.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    let pid = std::process::id();
    let mut slot = RUNTIME.lock();
    if let Some((owner, runtime)) = *slot
        && owner == pid
    {
        return Ok(runtime);
    }
    let built = Builder::new_multi_thread().enable_all().thread_name("stoker").build();
    let built = built.map_err(|source| {
        error(py, ErrorKind::ResourceExhausted, &format!("starting the threads of the stoker runtime: {source}"))
    })?;
    let runtime: &'static Runtime = Box::leak(Box::new(built));
    *slot = Some((pid, runtime));
    Ok(runtime)
}

/// This process's runtime, if it was started.
pub(crate) fn started() -> Option<&'static Runtime> {
    let slot = *RUNTIME.lock();
    slot.filter(|(owner, _)| *owner == std::process::id()).map(|(_, runtime)| runtime)
}

/// Waits for a future without holding the interpreter lock.
///
/// A signal whose Python handler raises, as Ctrl-C does, drops the future and raises here.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = runtime(py)?;
    let _context = runtime.enter();
    let mut future = Box::pin(future);
    loop {
        let waiting = &mut future;
        let outcome =
            py.detach(|| runtime.block_on(async { tokio::time::timeout(SIGNAL_INTERVAL, waiting.as_mut()).await }));
        match outcome {
            Ok(output) => return Ok(output),
            Err(_elapsed) => py.check_signals()?,
        }
    }
}
