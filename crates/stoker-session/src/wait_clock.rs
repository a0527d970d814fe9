//! Measures how long a consumer waits for its stream.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_types::Moment;

/// Sums the time in which a consumer waits for batches. It stands still while the consumer does something else. Cheap to
/// clone; clones show the same time.
#[derive(Clone, Default)]
pub struct WaitClock {
    clock: Clock,
    waited: Arc<Mutex<Waited>>,
}

#[derive(Default)]
struct Waited {
    before: Duration,
    /// When the current wait began; `None` while the consumer does not wait.
    since: Option<Moment>,
}

impl WaitClock {
    /// Makes one that measures the waits by a clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, waited: Arc::default() }
    }

    /// Returns the clock by which the waits are measured.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the sum up to now, including the current wait.
    pub fn waited(&self) -> Duration {
        let waited = self.waited.lock();
        waited.before + waited.since.map_or(Duration::ZERO, |since| self.clock.since(since))
    }

    /// Runs the clock until the returned guard is dropped. Only one consumer may wait at a time.
    pub fn wait(&self) -> Waiting {
        self.waited.lock().since = Some(self.clock.now());
        Waiting(self.clone())
    }
}

/// A guard that runs the clock while a consumer waits.
pub struct Waiting(WaitClock);

impl Drop for Waiting {
    fn drop(&mut self) {
        let WaitClock { clock, waited } = &self.0;
        let mut waited = waited.lock();
        if let Some(since) = waited.since.take() {
            waited.before += clock.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use stoker_clock::ManualClock;

    use super::*;

    #[test]
    fn only_waits_are_counted_the_current_one_included() {
        let (time, second) = (ManualClock::new(), Duration::from_secs(1));
        let consumer = WaitClock::new(Clock::from(&time));
        let shown = consumer.clone();
        time.advance(second);
        assert_eq!(shown.waited(), Duration::ZERO);
        let waiting = consumer.wait();
        time.advance(2 * second);
        assert_eq!(shown.waited(), 2 * second);
        drop(waiting);
        time.advance(4 * second);
        assert_eq!(shown.waited(), 2 * second);
        let _waiting = consumer.wait();
        time.advance(8 * second);
        assert_eq!(shown.waited(), 10 * second);
    }
}
