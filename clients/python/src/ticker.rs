//! A clock for threads that wait.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Builder, Thread};
use std::time::Duration;

use tokio::sync::Notify;

/// How often a waiting thread looks for signals such as Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(100);

/// Wakes waiting threads at an interval, from a thread of its own: where all threads of a runtime compute, as a query may make them do
/// for minutes, its timers are late by as much.
#[derive(Debug)]
pub(crate) struct Ticker {
    num_waiting: AtomicUsize,
    ticked: Notify,
    thread: std::sync::OnceLock<Thread>,
}

impl Ticker {
    /// Starts the thread, which lives as long as the process.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start() -> io::Result<&'static Ticker> {
        let ticker: &'static Ticker = Box::leak(Box::new(Ticker {
            num_waiting: AtomicUsize::new(0),
            ticked: Notify::new(),
            thread: std::sync::OnceLock::new(),
        }));
        let started = Builder::new().name("stoker-ticker".into()).spawn(|| ticker.run())?;
        ticker.thread.get_or_init(|| started.thread().clone());
        Ok(ticker)
    }

    /// Waits for the next tick.
    pub(crate) async fn tick(&self) {
        let ticked = self.ticked.notified();
        let _waiting = Waiting::new(self);
        ticked.await;
    }

    fn run(&self) {
        loop {
            while self.num_waiting.load(Ordering::SeqCst) == 0 {
                thread::park();
            }
            thread::sleep(INTERVAL);
            self.ticked.notify_waiters();
        }
    }
}

/// A thread that waits for a tick.
struct Waiting<'a>(&'a Ticker);

impl<'a> Waiting<'a> {
    fn new(ticker: &'a Ticker) -> Self {
        if ticker.num_waiting.fetch_add(1, Ordering::SeqCst) == 0
            && let Some(thread) = ticker.thread.get()
        {
            thread.unpark();
        }
        Self(ticker)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.num_waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
