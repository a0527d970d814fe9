//! The clock that is handed in.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use stoker_types::Moment;

use crate::machine::{self, MachineClock};
use crate::{ManualClock, Ticks};

/// A source of time: the machine's by default, or a [`ManualClock`]. Cheap to clone; clones show the same time.
///
/// It is an enum rather than a trait object, so that sleeps need no memory of their own.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    Machine(MachineClock),
    Manual(ManualClock),
}

impl Default for Clock {
    /// Returns the clock of the machine. All such clocks of a process show the same moments.
    fn default() -> Self {
        Self(Source::Machine(MachineClock::new()))
    }
}

impl From<&ManualClock> for Clock {
    fn from(clock: &ManualClock) -> Self {
        Self(Source::Manual(clock.clone()))
    }
}

impl Clock {
    /// Returns the current moment. It never goes back.
    pub fn now(&self) -> Moment {
        match &self.0 {
            Source::Machine(clock) => Moment::START + clock.elapsed(),
            Source::Manual(clock) => clock.now(),
        }
    }

    /// Returns the time since a moment of this clock.
    pub fn since(&self, earlier: Moment) -> Duration {
        self.now() - earlier
    }

    /// Returns the time since 1970 UTC. Unlike [`Clock::now`], it may jump, in both directions.
    pub fn unix_time(&self) -> Duration {
        match &self.0 {
            Source::Machine(_) => machine::unix_time(),
            Source::Manual(clock) => clock.unix_time(),
        }
    }

    /// Returns a future that completes after `wait`, counted from this call. The clock of the machine needs a Tokio
    /// runtime for this.
    pub fn sleep(&self, wait: Duration) -> impl Future<Output = ()> + Send + use<> {
        match &self.0 {
            Source::Machine(_) => Either::Left(machine::sleep(wait)),
            Source::Manual(clock) => Either::Right(clock.sleep(wait)),
        }
    }

    /// Returns a future that completes at a moment, or at once if that has passed.
    pub fn sleep_until(&self, moment: Moment) -> impl Future<Output = ()> + Send + use<> {
        self.sleep(moment - self.now())
    }

    /// Runs work for at most `wait`, counted from this call. Returns `None` if the time is over first. Work that is
    /// done at that very moment counts.
    pub fn timeout<F: Future>(&self, wait: Duration, work: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        match &self.0 {
            Source::Machine(_) => Either::Left(machine::timeout(wait, work)),
            Source::Manual(clock) => {
                let sleep = clock.sleep(wait);
                Either::Right(async move {
                    match select(pin!(work), sleep).await {
                        Either::Left((done, _)) => Some(done),
                        Either::Right(_) => None,
                    }
                })
            }
        }
    }

    /// Runs work until a moment at most. Returns `None` if the moment comes first.
    pub fn timeout_at<F: Future>(&self, moment: Moment, work: F) -> impl Future<Output = Option<F::Output>> + use<F> {
        self.timeout(moment - self.now(), work)
    }

    /// Makes a series of ticks with a period; the first one comes at once.
    pub fn ticks(&self, period: Duration) -> Ticks {
        Ticks::new(self.clone(), period)
    }
}
