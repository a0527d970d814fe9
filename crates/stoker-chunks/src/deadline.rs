//! Until when something holds, for those who ask often.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Until when something holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Until {
    /// Until this time.
    Time(Instant),
    /// Until somebody says otherwise.
    Told,
}

impl Until {
    /// Whether it holds now.
    pub fn is_ahead(self) -> bool {
        match self {
            Until::Time(time) => Instant::now() < time,
            Until::Told => true,
        }
    }
}

/// An [`Until`] that is read without a lock; at first, and for `None`, it is over.
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
    /// Changes it.
    pub fn set(&self, until: Option<Until>) {
        let nanos = match until {
            None => 0,
            Some(Until::Told) => TOLD,
            Some(Until::Time(time)) => nanos(time.saturating_duration_since(self.begun)),
        };
        self.nanos.store(nanos, Ordering::Release);
    }

    /// Whether it holds now.
    pub fn is_ahead(&self) -> bool {
        match self.nanos.load(Ordering::Acquire) {
            TOLD => true,
            end => nanos(self.begun.elapsed()) < end,
        }
    }
}

/// Nanoseconds of a time span: of 584 years at most.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).map_or(TOLD - 1, |nanos| nanos.min(TOLD - 1))
}
