//! The bytes per second that all connections of a store send together.

use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How far the link may be behind its schedule and catch up: threads wake up a little late.
const BEHIND_MAX: Duration = Duration::from_millis(10);

/// A link that all connections share: one piece of a body follows the other.
pub struct Bandwidth {
    bytes_per_sec: f64,
    began: Instant,
    /// The time since the beginning at which the link has sent all pieces that were given to it.
    free_at: Mutex<Duration>,
}

impl Bandwidth {
    /// A link with a rate in bytes per second, which is more than zero.
    pub fn new(bytes_per_sec: f64) -> Self {
        Self { bytes_per_sec, began: Instant::now(), free_at: Mutex::new(Duration::ZERO) }
    }

    /// Waits until the link has sent a piece of so many bytes, after the pieces that were given to it before.
    pub fn wait(&self, num_bytes: u64) {
        let sent_at = self.sent_at(self.began.elapsed(), num_bytes);
        sleep(sent_at.saturating_sub(self.began.elapsed()));
    }

    /// Gives the link a piece at the time `now`. Returns the time at which it has sent the piece.
    fn sent_at(&self, now: Duration, num_bytes: u64) -> Duration {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = (*free_at).max(now.saturating_sub(BEHIND_MAX));
        *free_at += Duration::from_secs_f64(num_bytes as f64 / self.bytes_per_sec);
        *free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_all_connections_follow_each_other() {
        let link = Bandwidth::new(1_000.0);
        let millis = Duration::from_millis;
        assert_eq!(link.sent_at(millis(0), 500), millis(500));
        assert_eq!(link.sent_at(millis(0), 250), millis(750), "another connection at the same time");
        assert_eq!(link.sent_at(millis(745), 100), millis(850), "a piece that comes while the link is busy");
        assert_eq!(link.sent_at(millis(855), 100), millis(950), "a thread that woke up late");
        assert_eq!(link.sent_at(millis(2_000), 100), millis(2_090), "a link that was idle saves no more than 10 ms");
    }
}
