//! Tells for each step where its time went.

use std::time::{Duration, Instant};

use crate::Stalls;

/// Attributes the time of each step of a stream, as [`Stalls`] describes. Time comes from outside. Where batches come in parts,
/// a step is the sum over those of its batch.
#[derive(Debug, Default)]
pub struct StallMeter {
    /// When the consumer got the last batch, or part of one.
    taken: Option<Instant>,
    /// When it asked for the next one, and what it did before.
    asked: Option<(Instant, Duration)>,
    sum: Stalls,
    /// The parts of the batch that is not taken whole.
    step: Stalls,
    last_step: Stalls,
}

impl StallMeter {
    /// The consumer asks for a batch, or for a part of one. Asking again before it gets that changes nothing.
    pub fn asked(&mut self, now: Instant) {
        if self.asked.is_none() {
            let consumer = self.taken.map_or(Duration::ZERO, |taken| now.saturating_duration_since(taken));
            self.asked = Some((now, consumer));
        }
    }

    /// The consumer gets a batch whose making took `spans`. Returns how long it waited.
    pub fn taken(&mut self, now: Instant, spans: &Stalls) -> Duration {
        let waited = self.taken_part(now, spans);
        self.end_step();
        waited
    }

    /// The consumer gets a part of a batch whose making took `spans`. Returns how long it waited.
    pub fn taken_part(&mut self, now: Instant, spans: &Stalls) -> Duration {
        let (asked, consumer) = self.asked.take().unwrap_or((now, Duration::ZERO));
        let waited = now.saturating_duration_since(asked);
        let stalls = Stalls { consumer, ..spans.scaled_to(waited) };
        self.step += stalls;
        self.sum += stalls;
        self.taken = Some(now);
        waited
    }

    /// The part that was taken last completes its batch.
    pub fn end_step(&mut self) {
        self.last_step = std::mem::take(&mut self.step);
    }

    /// All that was taken so far.
    pub fn sum(&self) -> Stalls {
        self.sum
    }

    /// The last step that ended.
    pub fn last_step(&self) -> Stalls {
        self.last_step
    }
}
