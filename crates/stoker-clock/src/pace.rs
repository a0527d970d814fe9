//! A limit on the bytes per second.

use std::time::Duration;

use stoker_types::Moment;

use crate::Clock;

/// The most time by which work that was slow may be faster afterwards.
const LAG_MAX: Duration = Duration::from_secs(1);

/// Lets bytes pass at a limited rate.
#[derive(Debug)]
pub struct Pace {
    clock: Clock,
    bytes_per_sec_max: Option<u64>,
    bytes: u64,
    /// When the bytes that passed so far were due.
    due: Moment,
}

impl Pace {
    /// Makes a pace with a limit, or without one.
    pub fn new(clock: Clock, bytes_per_sec_max: Option<u64>) -> Self {
        Self { due: clock.now(), clock, bytes_per_sec_max, bytes: 0 }
    }

    /// The bytes that passed so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts bytes, and waits until they may have passed.
    pub async fn pass(&mut self, bytes: u64) {
        self.bytes += bytes;
        let Some(rate) = self.bytes_per_sec_max else { return };
        // Time that passed without bytes counts up to a second.
        let waited = self.clock.since(self.due);
        self.due += waited.saturating_sub(LAG_MAX) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.clock.sleep_until(self.due).await;
    }
}
