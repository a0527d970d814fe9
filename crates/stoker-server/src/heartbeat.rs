//! Detects whether the threads that serve clients make progress.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use stoker_types::to_millis;

/// The interval between two beats.
const INTERVAL: Duration = Duration::from_secs(1);

/// The maximum time without a beat; after it the process counts as stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A counter that advances as long as the runtime that serves clients runs its tasks.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    begun: Instant,
    /// The milliseconds from `begun` to the last beat.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    pub fn new() -> Self {
        Self { begun: Instant::now(), last: Arc::default() }
    }

    /// Beats once a second on the current runtime, for ever.
    pub async fn beat(self) {
        loop {
            self.last.store(to_millis(self.begun.elapsed()), Relaxed);
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Returns the time since the last beat if it is more than 60 s.
    pub fn stuck_for(&self) -> Option<Duration> {
        let silent = self.begun.elapsed().saturating_sub(Duration::from_millis(self.last.load(Relaxed)));
        (silent > SILENCE_MAX).then_some(silent)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use futures::FutureExt;

    use super::{Heartbeat, INTERVAL, SILENCE_MAX};

    #[tokio::test]
    async fn threads_are_stuck_after_a_minute_without_a_beat() {
        let begun = Instant::now().checked_sub(SILENCE_MAX + INTERVAL).expect("a machine that was started earlier");
        let heartbeat = Heartbeat { begun, last: Arc::default() };
        let silent = heartbeat.stuck_for().expect("no beat for a minute");
        assert!(silent >= SILENCE_MAX + INTERVAL, "{silent:?}");
        assert!(heartbeat.clone().beat().now_or_never().is_none(), "it beats on");
        assert_eq!(heartbeat.stuck_for(), None);
    }
}
