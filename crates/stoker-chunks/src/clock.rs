//! The clock of reads, which tests replace.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// A source of time. Tests provide their own.
pub(crate) trait Clock: Debug + Send + Sync {
    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;

    /// Returns a future that completes after `wait`.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct MachineClock {
    origin: Instant,
}

impl MachineClock {
    /// Makes a clock that starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(wait))
    }
}
