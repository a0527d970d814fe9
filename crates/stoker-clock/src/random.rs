//! Random numbers that are handed in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::machine;

/// A source of random numbers: the machine's by default, or given numbers. It is for keys, ids and waits; no result
/// depends on it. Cheap to clone; clones are the same source.
#[derive(Clone, Debug, Default)]
pub struct Random(Source);

#[derive(Clone, Debug, Default)]
enum Source {
    #[default]
    Machine,
    Given(Arc<Given>),
}

#[derive(Debug)]
struct Given {
    numbers: Vec<u64>,
    num_taken: AtomicUsize,
}

impl Random {
    /// Makes a source of these numbers, over and over; of zeros, if there are none.
    pub fn given(numbers: impl Into<Vec<u64>>) -> Self {
        Self(Source::Given(Arc::new(Given { numbers: numbers.into(), num_taken: AtomicUsize::new(0) })))
    }

    /// Returns the next number.
    ///
    /// After a fork, two processes may get the same numbers from the machine.
    pub fn number(&self) -> u64 {
        match &self.0 {
            Source::Machine => machine::random_number(),
            Source::Given(given) => {
                let index = given.num_taken.fetch_add(1, Ordering::Relaxed).checked_rem(given.numbers.len());
                index.and_then(|index| given.numbers.get(index)).copied().unwrap_or_default()
            }
        }
    }

    /// Returns a random number that is at least zero and less than one. The number 0 gives the smallest one,
    /// [`u64::MAX`] the largest.
    pub fn fraction(&self) -> f64 {
        (self.number() >> 11) as f64 / (1u64 << 53) as f64
    }
}
