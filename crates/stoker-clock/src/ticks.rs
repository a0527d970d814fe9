//! Ticks with a period.

use std::time::Duration;

use stoker_types::Moment;

use crate::Clock;

/// A tick that is awaited up to this much too late is still on time: timers are not exact.
const LATE_MIN: Duration = Duration::from_millis(5);

/// Ticks with a period. Whoever takes one too late gets the next one a whole period later.
#[derive(Debug)]
pub struct Ticks {
    clock: Clock,
    period: Duration,
    next: Moment,
}

impl Ticks {
    pub(crate) fn new(clock: Clock, period: Duration) -> Self {
        let next = clock.now();
        Self { clock, period, next }
    }

    /// Waits for the next tick. Cancelling the future loses nothing.
    pub async fn next(&mut self) {
        self.clock.sleep_until(self.next).await;
        let now = self.clock.now();
        let is_late = now - self.next > LATE_MIN;
        self.next = if is_late { now } else { self.next } + self.period;
    }
}
