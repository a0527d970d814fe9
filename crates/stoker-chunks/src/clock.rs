//! Time as reads see it.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;

/// Tells the time and waits; tests bring a clock of their own.
pub(crate) trait Clock: Debug + Send + Sync {
    /// The time since a moment that stays the same.
    fn now(&self) -> Duration;

    /// Waits.
    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Debug)]
pub(crate) struct MachineClock {
    origin: Instant,
}

impl MachineClock {
    /// A clock that begins now.
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
