//! How long a consumer waited for its stream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Sums the time in which a consumer waited for batches. It stands still while the consumer does something else, for however long.
/// Cheap to clone; clones show the same time.
#[derive(Clone, Default)]
pub(crate) struct WaitClock(Arc<Mutex<Waited>>);

#[derive(Default)]
struct Waited {
    before: Duration,
    /// Since when the consumer waits now.
    since: Option<Instant>,
}

impl WaitClock {
    /// The time until now.
    pub fn waited(&self) -> Duration {
        let waited = self.0.lock();
        waited.before + waited.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Runs the clock until the answer is dropped. One consumer may wait at a time.
    pub fn wait(&self) -> Waiting {
        self.0.lock().since = Some(Instant::now());
        Waiting(self.clone())
    }
}

/// A consumer that waits.
pub(crate) struct Waiting(WaitClock);

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waited = self.0.0.lock();
        if let Some(since) = waited.since.take() {
            waited.before += since.elapsed();
        }
    }
}
