//! A clock for threads that wait.

use std::io;
use std::thread::{Builder, sleep};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// How often a waiting thread looks for signals such as Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(100);

/// Wakes waiting threads at an interval, from a thread of its own: where all threads of a runtime compute, as a query may make them do
/// for minutes, its timers are late by as much.
#[derive(Debug, Default)]
pub(crate) struct Ticker {
    num_waiting: Mutex<usize>,
    begun: Condvar,
    ticked: Notify,
}

impl Ticker {
    /// Starts the thread, which lives as long as the process.
    ///
    /// # Errors
    /// The system has no thread.
    pub(crate) fn start() -> io::Result<&'static Ticker> {
        let ticker: &'static Ticker = Box::leak(Box::default());
        Builder::new().name("stoker-ticker".into()).spawn(|| ticker.run())?;
        Ok(ticker)
    }

    /// Waits for the next tick.
    pub(crate) async fn tick(&self) {
        let ticked = self.ticked.notified();
        let _waiting = Waiting::new(self);
        ticked.await;
    }

    fn run(&self) -> ! {
        loop {
            self.begun.wait_while(&mut self.num_waiting.lock(), |num_waiting| *num_waiting == 0);
            sleep(INTERVAL);
            self.ticked.notify_waiters();
        }
    }
}

/// A thread that waits for a tick.
struct Waiting<'a>(&'a Ticker);

impl<'a> Waiting<'a> {
    fn new(ticker: &'a Ticker) -> Self {
        *ticker.num_waiting.lock() += 1;
        ticker.begun.notify_one();
        Self(ticker)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.0.num_waiting.lock() -= 1;
    }
}
