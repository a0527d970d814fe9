//! Detects whether the threads that serve clients make progress.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use stoker_clock::Clock;
use stoker_types::{Moment, to_millis};

/// The interval between two beats.
const INTERVAL: Duration = Duration::from_secs(1);

/// The maximum time without a beat; after it the process counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A counter that advances as long as the runtime that serves clients runs its tasks.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    clock: Clock,
    begun: Moment,
    /// The milliseconds from `begun` to the last beat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    pub fn new(clock: Clock) -> Self {
        Self { begun: clock.now(), clock, last: Arc::default() }
    }

    /// Beats once a second on the current runtime, for ever.
    pub async fn beat(self) {
        loop {
            self.last.store(to_millis(self.clock.since(self.begun)), Relaxed);
            self.clock.sleep(INTERVAL).await;
        }
    }

    /// Returns the time since the last beat if it is more than 60 s.
    pub fn stuck_for(&self) -> Option<Duration> {
        let silent = self.clock.since(self.begun).saturating_sub(Duration::from_millis(self.last.load(Relaxed)));
        (silent > SILENCE_MAX).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt;
    use stoker_clock::ManualClock;

    use super::*;

    #[test]
    fn threads_are_stuck_after_a_minute_without_a_beat() {
        let time = ManualClock::new();
        let heartbeat = Heartbeat::new(Clock::from(&time));
        let nanosecond = Duration::from_nanos(1);
        time.advance(SILENCE_MAX);
        assert_eq!(heartbeat.stuck_for(), None);
        time.advance(nanosecond);
        assert_eq!(heartbeat.stuck_for(), Some(SILENCE_MAX + nanosecond));
        // The task beats when it runs, and then waits for a second.
        let mut beating = pin!(heartbeat.clone().beat());
        for _ in 0..3 {
            assert!(beating.as_mut().now_or_never().is_none(), "it beats on");
            assert_eq!(heartbeat.stuck_for(), None);
            time.advance(INTERVAL - nanosecond);
            assert!(beating.as_mut().now_or_never().is_none());
            assert_eq!(time.num_sleepers(), 1, "it waits for the whole second");
            time.advance(SILENCE_MAX);
            assert!(heartbeat.stuck_for().is_some_and(|silent| silent > SILENCE_MAX));
        }
    }
}
