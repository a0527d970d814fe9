//! Tells for each step where its time went.

use std::time::{Duration, Instant};

use crate::Stalls;

/// Attributes the time of each step of a stream, as [`Stalls`] describes. Time comes from outside.
#[derive(Debug, Default)]
pub struct StallMeter {
    /// When the consumer got the last batch.
    taken: Option<Instant>,
    /// When it asked for the next one, and what it did before.
    asked: Option<(Instant, Duration)>,
    sum: Stalls,
    last_step: Stalls,
}

impl StallMeter {
    /// The consumer asks for a batch. Asking again before it gets one changes nothing.
    pub fn asked(&mut self, now: Instant) {
        if self.asked.is_none() {
            let consumer = self.taken.map_or(Duration::ZERO, |taken| now.saturating_duration_since(taken));
            self.asked = Some((now, consumer));
        }
    }

    /// The consumer gets a batch whose making took `spans`. Returns how long it waited.
    pub fn taken(&mut self, now: Instant, spans: &Stalls) -> Duration {
        let (asked, consumer) = self.asked.take().unwrap_or((now, Duration::ZERO));
        let waited = now.saturating_duration_since(asked);
        self.last_step = Stalls { consumer, ..spans.scaled_to(waited) };
        self.sum += self.last_step;
        self.taken = Some(now);
        waited
    }

    /// All steps so far.
    pub fn sum(&self) -> Stalls {
        self.sum
    }

    /// The last step.
    pub fn last_step(&self) -> Stalls {
        self.last_step
    }
}
