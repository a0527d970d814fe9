//! For how long a consumer waits for a server that lives and sends no row.

use std::time::Duration;

use crate::client::wait_clock::WaitClock;
use crate::{Error, Result};

/// A server that lives has so long at least: its storage may be slow, though nothing is tried again.
const WAIT_MIN: Duration = Duration::from_secs(10);

/// A server that tries its storage again for the same budget gets this part of it more, to say why there is no row.
const GRACE_PART: u32 = 4;

/// Gives a server up that shows signs of life only. What the consumer does between batches does not count.
pub(crate) struct RowPatience {
    clock: WaitClock,
    budget: Duration,
    /// What the clock showed when the last row came.
    last_row: Duration,
}

impl RowPatience {
    /// Patience of a consumer with a clock, from now on.
    pub fn new(clock: WaitClock, budget: Duration) -> Self {
        let last_row = clock.waited();
        Self { clock, budget, last_row }
    }

    /// Rows came.
    pub fn row_came(&mut self) {
        self.last_row = self.clock.waited();
    }

    /// A sign of life came.
    ///
    /// # Errors
    /// `Unavailable` where the consumer has waited for a row for longer than the budget.
    pub fn check(&self) -> Result<()> {
        let waited = self.clock.waited().saturating_sub(self.last_row);
        match waited > (self.budget + self.budget / GRACE_PART).max(WAIT_MIN) {
            true => Err(Error::broken(format!("the server lives and has sent no row for {} s", waited.as_secs()))),
            false => Ok(()),
        }
    }
}
