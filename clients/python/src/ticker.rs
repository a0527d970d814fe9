//! A timer for threads that wait.

use std::io;
use std::thread::{Builder, sleep};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

/// How often a waiting thread checks for signals such as Ctrl-C.
const INTERVAL: Duration = Duration::from_millis(100);

/// Wakes waiting threads at an interval, from a thread of its own. The timers of a runtime cannot do this: when all
/// threads of the runtime compute, which a query may cause for minutes, its timers are late by that time.
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
    /// The system cannot start a thread.
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

/// Counts one waiting thread while it exists; the ticker sleeps while nobody waits.
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
