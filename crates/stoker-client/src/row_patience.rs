//! Bounds how long a consumer waits for a server that is alive and sends no row.

use std::time::Duration;

use stoker_session::WaitClock;
use stoker_wire::{Error, Result};

/// The shortest time that a server gets, because its storage may be slow even when it retries nothing.
const WAIT_MIN: Duration = Duration::from_secs(10);

/// The server retries its storage with the same budget. It gets a quarter of the budget more, to report the error.
const GRACE_PART: u32 = 4;

/// Fails a stream whose server sends only signs of life. The time that the consumer spends between batches does not
/// count.
pub(crate) struct RowPatience {
    clock: WaitClock,
    budget: Duration,
    /// The time on the clock when the last row came.
    last_row: Duration,
}

impl RowPatience {
    /// Starts to measure now, with the consumer's clock.
    pub fn new(clock: WaitClock, budget: Duration) -> Self {
        let last_row = clock.waited();
        Self { clock, budget, last_row }
    }

    /// Notes that rows came.
    pub fn row_came(&mut self) {
        self.last_row = self.clock.waited();
    }

    /// Checks the budget after a sign of life.
    ///
    /// # Errors
    /// `Unavailable` when the consumer has waited for a row for longer than the budget and a quarter of it, and for
    /// more than 10 s.
    pub fn check(&self) -> Result<()> {
        let waited = self.clock.waited().saturating_sub(self.last_row);
        match waited > (self.budget + self.budget / GRACE_PART).max(WAIT_MIN) {
            true => {
                let secs = waited.as_secs();
                Err(Error::broken(format!("the server answers, but has sent no row for {secs} s")))
            }
            false => Ok(()),
        }
    }
}
