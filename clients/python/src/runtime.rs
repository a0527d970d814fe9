//! Runs one tokio runtime per process, and waits for its futures without holding the interpreter lock.

use std::future::Future;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_types::ErrorKind;
use tokio::runtime::{Builder, Runtime};

use crate::exceptions::error;
use crate::exit::detached;
use crate::ticker::Ticker;

/// The runtime and ticker of one process.
#[derive(Clone, Copy)]
struct Threads {
    pid: u32,
    runtime: &'static Runtime,
    ticker: &'static Ticker,
}

/// The runtime and ticker that were started last, by this process or, after a `fork`, by its parent.
static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

/// Returns this process's runtime, which starts on first use.
///
/// Threads do not survive `fork`. A child therefore starts a runtime of its own and never stops the parent's, because
/// stopping it would wait for threads that do not exist. Runtimes are never dropped; there is one per process.
pub(crate) fn runtime(py: Python<'_>) -> PyResult<&'static Runtime> {
    threads(py).map(|threads| threads.runtime)
}

fn threads(py: Python<'_>) -> PyResult<Threads> {
    let mut slot = THREADS.lock();
    if let Some(threads) = *slot
        && threads.pid == std::process::id()
    {
        return Ok(threads);
    }
    let failed = |source: std::io::Error| {
        error(py, ErrorKind::ResourceExhausted, &format!("starting the threads of the stoker runtime: {source}"))
    };
    let runtime = Builder::new_multi_thread().enable_all().thread_name("stoker").build().map_err(failed)?;
    let ticker = Ticker::start().map_err(failed)?;
    let threads = Threads { pid: std::process::id(), runtime: Box::leak(Box::new(runtime)), ticker };
    *slot = Some(threads);
    Ok(threads)
}

/// Returns this process's runtime if it was started.
pub(crate) fn started() -> Option<&'static Runtime> {
    let slot = *THREADS.lock();
    slot.filter(|threads| threads.pid == std::process::id()).map(|threads| threads.runtime)
}

/// Waits for a future without holding the interpreter lock.
///
/// Every 100 ms it lets Python handle signals. If a handler raises, as the one for Ctrl-C does, the future is dropped
/// and the exception is returned.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    wait_with(py, future, |_| Ok(()))
}

/// As [`wait`], and calls a function with the interpreter lock every 100 ms, whose exceptions are returned, too.
pub(crate) fn wait_with<F>(
    py: Python<'_>,
    future: F,
    mut tell: impl FnMut(Python<'_>) -> PyResult<()>,
) -> PyResult<F::Output>
where
    F: Future + Send,
    F::Output: Send,
{
    let Threads { runtime, ticker, .. } = threads(py)?;
    let _context = runtime.enter();
    let mut future = Box::pin(future);
    loop {
        let waiting = &mut future;
        let outcome = detached(py, || {
            runtime.block_on(async {
                tokio::select! {
                    biased;
                    output = waiting.as_mut() => Some(output),
                    () = ticker.tick() => None,
                }
            })
        });
        match outcome {
            Some(output) => return Ok(output),
            None => {
                py.check_signals()?;
                tell(py)?;
            }
        }
    }
}
