//! Ranks that share blocks, and whether enough of them are here.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::deadline::Until;

/// So long after the last stream, the next one of the same ranks finds their blocks.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// Ranks of a stream that want rows of the same blocks, whatever the epochs that they are in.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// Open streams of each rank that is here.
    open: HashMap<u32, usize>,
    /// Ranks that want rows of the same blocks, here or elsewhere.
    num_ranks: u64,
    /// When enough of them were here last.
    shared: Option<Instant>,
}

impl Members {
    /// Notes that one of so many ranks opened a stream.
    pub fn enter(&mut self, rank: u32, num_ranks: u64) {
        self.num_ranks = num_ranks;
        *self.open.entry(rank).or_default() += 1;
        self.note();
    }

    /// Notes that a stream of a rank ended.
    pub fn leave(&mut self, rank: u32) {
        self.note();
        if let Some(open) = self.open.get_mut(&rank) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&rank);
            }
        }
    }

    /// Whether no rank is here.
    pub fn are_none(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether so many ranks are here that they want half of the rows of a block: fewer read their rows with fewer bytes alone.
    fn are_many(&self) -> bool {
        let here = self.open.len() as u64;
        here > 1 && 2 * here >= self.num_ranks
    }

    /// Whether they are, or were a moment ago: ranks go on to the next epoch one after the other.
    pub fn are_several(&self) -> bool {
        self.several_until().is_some_and(Until::is_ahead)
    }

    /// Until when they are several, if none comes or goes; `None` if they never were.
    pub fn several_until(&self) -> Option<Until> {
        if self.are_many() { Some(Until::Told) } else { self.shared.map(|shared| Until::Time(shared + LINGER)) }
    }

    fn note(&mut self) {
        if self.are_many() {
            self.shared = Some(Instant::now());
        }
    }
}
