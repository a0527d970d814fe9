//! Divides the time of each step among its causes.

use std::time::Duration;

use stoker_types::{Moment, Stalls};

/// Attributes the time of each step of a stream, as [`Stalls`] describes. The caller supplies the current time. If
/// batches are delivered in parts, the times of a step are the sums over the parts of its batch.
#[derive(Debug, Default)]
pub struct StallMeter {
    /// The time at which the consumer got the last batch or part.
    taken: Option<Moment>,
    /// The time at which the consumer asked for the next batch or part, and the time that it took before.
    asked: Option<(Moment, Duration)>,
    sum: Stalls,
    /// The times of the delivered parts of the current batch.
    step: Stalls,
    last_step: Stalls,
}

impl StallMeter {
    /// Records that the consumer asks for a batch or part. A repeated call before the batch is delivered changes
    /// nothing.
    pub fn asked(&mut self, now: Moment) {
        if self.asked.is_none() {
            let consumer = self.taken.map_or(Duration::ZERO, |taken| now - taken);
            self.asked = Some((now, consumer));
        }
    }

    /// Records that the consumer gets a batch, whose making took `spans`. Returns the time that the consumer waited.
    pub fn taken(&mut self, now: Moment, spans: &Stalls) -> Duration {
        let waited = self.taken_part(now, spans);
        self.end_step();
        waited
    }

    /// Records that the consumer gets a part, whose making took `spans`. Returns the time that the consumer waited.
    pub fn taken_part(&mut self, now: Moment, spans: &Stalls) -> Duration {
        let (asked, consumer) = self.asked.take().unwrap_or((now, Duration::ZERO));
        let waited = now - asked;
        let stalls = Stalls { consumer, ..spans.scaled_to(waited) };
        self.step += stalls;
        self.sum += stalls;
        self.taken = Some(now);
        waited
    }

    /// Records that the last delivered part completes its batch.
    pub fn end_step(&mut self) {
        self.last_step = std::mem::take(&mut self.step);
    }

    /// Returns the sum of all times so far.
    pub fn sum(&self) -> Stalls {
        self.sum
    }

    /// Returns the times of the last complete step.
    pub fn last_step(&self) -> Stalls {
        self.last_step
    }
}
