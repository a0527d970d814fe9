//! A limit on the bytes per second.

use std::time::Duration;

use tokio::time::Instant;

/// The most time by which work that was slow may be faster afterwards.
const LAG_MAX: Duration = Duration::from_secs(1);

/// Lets bytes pass at a limited rate.
pub(super) struct Pace {
    bytes_per_sec_max: Option<u64>,
    /// The bytes that passed so far.
    bytes: u64,
    /// When the bytes that passed so far were due.
    due: Instant,
}

impl Pace {
    /// Makes a pace with a limit, or without one.
    pub fn new(bytes_per_sec_max: Option<u64>) -> Self {
        Self { bytes_per_sec_max, bytes: 0, due: Instant::now() }
    }

    /// The bytes that passed so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Counts bytes, and waits until they may have passed.
    pub async fn pass(&mut self, bytes: u64) {
        if let Some(due) = self.due_at(bytes, Instant::now()) {
            tokio::time::sleep_until(due).await;
        }
    }

    /// Counts bytes. Returns when they may have passed, if there is a limit.
    fn due_at(&mut self, bytes: u64, now: Instant) -> Option<Instant> {
        self.bytes += bytes;
        let rate = self.bytes_per_sec_max?;
        let earliest = now.checked_sub(LAG_MAX).unwrap_or(now);
        self.due = self.due.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        Some(self.due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;

    #[test]
    fn bytes_pass_at_the_limit() {
        let mut pace = Pace::new(Some(1_000));
        let began = pace.due;
        let after = |due: Option<tokio::time::Instant>| due.map(|due| due - began);
        for half_secs in 1..=10 {
            assert_eq!(after(pace.due_at(500, began)), Some(Duration::from_millis(500 * half_secs)));
        }
        // A pause of a minute allows no more than the bytes of a second at once.
        let later = began + Duration::from_secs(65);
        assert_eq!(after(pace.due_at(3_000, later)), Some(Duration::from_secs(67)));
        assert_eq!(pace.bytes(), 8_000);
    }

    #[test]
    fn without_a_limit_nothing_waits() {
        let mut pace = Pace::new(None);
        assert_eq!(pace.due_at(1 << 60, pace.due), None);
        assert_eq!(pace.bytes(), 1 << 60);
    }
}
