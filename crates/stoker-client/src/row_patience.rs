//! Bounds how long a consumer waits for a server that is alive and sends no row.

use std::time::Duration;

use stoker_clock::Clock;
use stoker_session::WaitClock;
use stoker_wire::{Error, Result};

/// The shortest time that a server gets, because its storage may be slow even when it retries nothing.
const WAIT_MIN: Duration = Duration::from_secs(10);

/// The server retries its storage with the same budget. It gets a quarter of the budget more, to report the error.
const GRACE_PART: u32 = 4;

/// Fails a stream whose server sends only signs of life. The time that the consumer spends between batches does not
/// count.
pub(crate) struct RowPatience {
    consumer: WaitClock,
    budget: Duration,
    /// The time that the consumer had waited when the last row came.
    last_row: Duration,
}

impl RowPatience {
    /// Starts to measure now, with the waits of the consumer.
    pub fn new(consumer: WaitClock, budget: Duration) -> Self {
        let last_row = consumer.waited();
        Self { consumer, budget, last_row }
    }

    /// Returns the clock by which the waits are measured.
    pub fn clock(&self) -> &Clock {
        self.consumer.clock()
    }

    /// Notes that rows came.
    pub fn row_came(&mut self) {
        self.last_row = self.consumer.waited();
    }

    /// Checks the budget after a sign of life.
    ///
    /// # Errors
    /// `Unavailable` when the consumer has waited for a row for longer than the budget and a quarter of it, and for
    /// more than 10 s.
    pub fn check(&self) -> Result<()> {
        let waited = self.consumer.waited().saturating_sub(self.last_row);
        match waited > (self.budget + self.budget / GRACE_PART).max(WAIT_MIN) {
            true => {
                let secs = waited.as_secs();
                Err(Error::broken(format!("the server answers, but has sent no row for {secs} s")))
            }
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stoker_clock::ManualClock;
    use stoker_types::ErrorKind;

    use super::*;

    /// Checks the longest wait for a row with a retry budget. The consumer pauses between two waits.
    #[track_caller]
    fn check(budget: Duration, wait_max: Duration) {
        let time = ManualClock::new();
        let consumer = WaitClock::new(Clock::from(&time));
        let mut patience = RowPatience::new(consumer.clone(), budget);
        for _ in 0..2 {
            patience.row_came();
            let waiting = consumer.wait();
            time.advance(wait_max / 2);
            drop(waiting);
            time.advance(wait_max);
            let _waiting = consumer.wait();
            time.advance(wait_max / 2);
            patience.check().expect("enough time is left");
            time.advance(Duration::from_nanos(1));
            let error = patience.check().expect_err("no row came");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let text = format!("has sent no row for {} s", wait_max.as_secs());
            assert!(error.to_string().contains(&text), "{error}");
        }
    }

    #[test]
    fn a_server_gets_a_quarter_more_than_the_budget_and_ten_seconds_at_least() {
        let secs = Duration::from_secs;
        check(secs(120), secs(150));
        check(secs(8), secs(10));
        check(secs(9), Duration::from_millis(11_250));
        check(Duration::ZERO, secs(10));
    }
}
