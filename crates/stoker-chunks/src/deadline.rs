//! A deadline that can be read often and without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The end of the time in which a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// The condition holds until this time.
    Time(Instant),
    /// The condition holds until the deadline is set again.
    Told,
}

impl Until {
    /// Returns whether the condition holds now.
    pub fn is_ahead(self) -> bool {
        match self {
            Until::Time(time) => Instant::now() < time,
            Until::Told => true,
        }
    }
}

/// An [`Until`] that is read without a lock. Initially, and after it is set to `None`, the condition does not hold.
#[derive(Debug)]
pub(crate) struct Deadline {
    begun: Instant,
    /// Nanoseconds after `begun`; [`TOLD`] for [`Until::Told`].
    nanos: AtomicU64,
}

const TOLD: u64 = u64::MAX;

impl Default for Deadline {
    fn default() -> Self {
        Self { begun: Instant::now(), nanos: AtomicU64::new(0) }
    }
}

impl Deadline {
    /// Sets the deadline.
    pub fn set(&self, until: Option<Until>) {
        let nanos = match until {
            None => 0,
            Some(Until::Told) => TOLD,
            Some(Until::Time(time)) => nanos(time.saturating_duration_since(self.begun)),
        };
        self.nanos.store(nanos, Ordering::Release);
    }

    /// Returns whether the condition holds now.
    pub fn is_ahead(&self) -> bool {
        match self.nanos.load(Ordering::Acquire) {
            TOLD => true,
            end => nanos(self.begun.elapsed()) < end,
        }
    }
}

/// Returns a duration in nanoseconds, limited to 584 years.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(TOLD - 1, |nanos| nanos.min(TOLD - 1))
}
