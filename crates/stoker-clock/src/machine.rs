//! The time and the random numbers of the machine.

#![expect(clippy::disallowed_methods, reason = "everything else asks a clock or a source of random numbers")]

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt;

/// The start of all clocks of the machine in this process, so that their moments can be compared.
static START: OnceLock<Instant> = OnceLock::new();

/// The clock of the machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineClock {
    start: Instant,
}

impl MachineClock {
    pub fn new() -> Self {
        Self { start: *START.get_or_init(Instant::now) }
    }

    /// Returns the time since the start.
    pub fn elapsed(self) -> Duration {
        self.start.elapsed()
    }
}

/// Returns the time since 1970 UTC; zero if the machine's clock shows an earlier time.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(crate) fn sleep(wait: Duration) -> tokio::time::Sleep {
    tokio::time::sleep(wait)
}

/// Runs work for at most `wait`. Work that never waits cannot keep the timer from being seen, as it could in a `select`.
pub(crate) fn timeout<F: Future>(wait: Duration, work: F) -> impl Future<Output = Option<F::Output>> {
    tokio::time::timeout(wait, work).map(Result::ok)
}

/// Returns a random number. The keys of the hash function come from the operating system, once for each thread; each
/// call counts them up.
pub(crate) fn random_number() -> u64 {
    RandomState::new().hash_one(0)
}
