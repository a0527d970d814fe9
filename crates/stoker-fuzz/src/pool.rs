//! The inputs from which others are made.

use crate::random::Random;

/// The most changed inputs that are kept.
const FOUND_MAX: usize = 512;

/// The seeds, and changed inputs that the target accepted.
pub(crate) struct Pool {
    seeds: Vec<Vec<u8>>,
    found: Vec<Vec<u8>>,
}

impl Pool {
    pub fn new(seeds: Vec<Vec<u8>>) -> Self {
        Self { seeds, found: Vec::new() }
    }

    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Returns a seed or an accepted input. Half of them are seeds, so that long runs do not move away from them.
    pub fn pick(&self, random: &mut Random) -> &[u8] {
        let from = if random.once_in(2) || self.found.is_empty() { &self.seeds } else { &self.found };
        random.pick(from).map_or(&[], Vec::as_slice)
    }

    /// Keeps an accepted input, sometimes in place of another one.
    pub fn keep(&mut self, random: &mut Random, input: &[u8]) {
        if self.found.len() < FOUND_MAX {
            self.found.push(input.to_vec());
        } else if random.once_in(16) {
            self.found[random.below(FOUND_MAX)] = input.to_vec();
        }
    }
}
