//! Measures how long a consumer waits for its stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Sums the time in which a consumer waits for batches. The clock stands still while the consumer does something else.
/// Cheap to clone; clones show the same time.
#[derive(Clone, Default)]
pub struct WaitClock(Arc<Mutex<Waited>>);

#[derive(Default)]
struct Waited {
    before: Duration,
    /// When the current wait began; `None` while the consumer does not wait.
    since: Option<Instant>,
}

impl WaitClock {
    /// Returns the sum up to now, including the current wait.
    pub fn waited(&self) -> Duration {
        let waited = self.0.lock();
        waited.before + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Runs the clock until the returned guard is dropped. Only one consumer may wait at a time.
    pub fn wait(&self) -> Waiting {
        self.0.lock().since = Some(Instant::now());
        Waiting(self.clone())
    }
}

/// A guard that runs the clock while a consumer waits.
pub struct Waiting(WaitClock);

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waited = self.0.0.lock();
        if let Some(since) = waited.since.take() {
            waited.before += since.elapsed();
        }
    }
}
