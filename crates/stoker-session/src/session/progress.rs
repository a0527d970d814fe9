//! The progress of a session: the batches of an epoch that the consumer got.

use serde::{Deserialize, Serialize};
use stoker_types::BatchLogEntry;

/// The progress in the epochs of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The epoch, from zero.
    pub epoch: u64,
    /// The position at which the epoch or the last resumption began.
    pub origin: u64,
    /// The next position.
    pub position: u64,
    /// The number of the global batch at `origin`, counted from the start of the training.
    pub first_step: u64,
    /// The number of global batches that the consumer got since `origin`.
    pub next_step: u64,
    /// The global batch sizes of the epoch so far. The first entry is the start of the epoch.
    pub log: Vec<BatchLogEntry>,
}

impl Progress {
    /// Returns the start of an epoch. `step` is the number of its first step.
    pub fn start_of(epoch: u64, step: u64, global_batch: u64) -> Self {
        let log = vec![BatchLogEntry { step, position: 0, global_batch }];
        Self { epoch, origin: 0, position: 0, first_step: step, next_step: 0, log }
    }

    /// Returns a position within an epoch. `log` has the sizes of the global batches before it.
    pub fn resumed(epoch: u64, position: u64, step: u64, log: &[BatchLogEntry], global_batch: u64) -> Self {
        let is_before = |entry: &&BatchLogEntry| entry.position < position || entry.step < step;
        let mut before: Vec<BatchLogEntry> = log.iter().filter(is_before).copied().collect();
        let continues = before
            .last()
            .is_some_and(|last| last.global_batch == global_batch && position_at(last, step) == i128::from(position));
        if !continues {
            before.push(BatchLogEntry { step, position, global_batch });
        }
        Self { epoch, origin: position, position, first_step: step, next_step: 0, log: before }
    }

    /// Returns the number of the next global batch, counted from the start of the training.
    pub fn step(&self) -> u64 {
        self.first_step.saturating_add(self.next_step)
    }

    /// Returns the number of global batches of this epoch before the origin.
    pub fn steps_before_origin(&self) -> u64 {
        self.first_step.saturating_sub(self.log.first().map_or(self.first_step, |first| first.step))
    }

    /// Returns the number of the first step of the epoch, counted from the start of the training.
    pub fn first_step_of_epoch(&self) -> u64 {
        self.log.first().map_or(self.first_step, |first| first.step)
    }

    /// Whether the consumer got or skipped a batch of the epoch, or the epoch was resumed from a state.
    pub fn is_begun(&self) -> bool {
        self.origin > 0 || self.next_step > 0
    }

    /// Moves behind global batch `step`, counted from the origin. `position` is the position after it.
    pub fn advance(&mut self, step: u64, position: u64) {
        (self.next_step, self.position) = (step.saturating_add(1), position);
    }
}

/// Returns the position of a step at the batch size of an entry. It is negative for a step long before the entry.
fn position_at(entry: &BatchLogEntry, step: u64) -> i128 {
    let steps = i128::from(step) - i128::from(entry.step);
    i128::from(entry.position) + steps.saturating_mul(i128::from(entry.global_batch))
}
