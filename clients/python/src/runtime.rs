//! One tokio runtime per process, and waiting on it without holding the interpreter lock.

use std::future::Future;

use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_types::ErrorKind;
use tokio::runtime::{Builder, Runtime};

use crate::exceptions::error;
use crate::exit::detached;
use crate::ticker::Ticker;

/// The threads of a process.
#[derive(Clone, Copy)]
struct Threads {
    pid: u32,
    runtime: &'static Runtime,
    ticker: &'static Ticker,
}

/// The threads, and the process that started them.
static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

/// This process's runtime, started on first use.
///
/// Threads do not survive `fork`: a child gets a runtime of its own, and the parent's is left alone, because stopping it
/// would wait for threads that do not exist. Runtimes are never dropped; there is one per process.
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

/// This process's runtime, if it was started.
pub(crate) fn started() -> Option<&'static Runtime> {
    let slot = *THREADS.lock();
    slot.filter(|threads| threads.pid == std::process::id()).map(|threads| threads.runtime)
}

/// Waits for a future without holding the interpreter lock.
///
/// A signal whose Python handler raises, as Ctrl-C does, drops the future and raises here.
pub(crate) fn wait<F>(py: Python<'_>, future: F) -> PyResult<F::Output>
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
            None => py.check_signals()?,
        }
    }
}
