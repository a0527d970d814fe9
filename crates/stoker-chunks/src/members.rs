//! The ranks of this process that share blocks.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::deadline::Until;

/// How long the blocks of a group are kept after its last stream ended, for the next stream of the same ranks.
pub(crate) const LINGER: Duration = Duration::from_secs(10);

/// The ranks of a stream that want rows of the same blocks, in any epochs.
#[derive(Debug, Default)]
pub(crate) struct Members {
    /// The number of open streams of each rank that has one in this process.
    open: HashMap<u32, usize>,
    /// The number of ranks that want rows of the same blocks, in this process or elsewhere.
    num_ranks: u64,
    /// When enough of the ranks last had streams in this process.
    shared: Option<Instant>,
}

impl Members {
    /// Adds a stream of a rank, which is one of `num_ranks` ranks.
    pub fn enter(&mut self, rank: u32, num_ranks: u64) {
        self.num_ranks = num_ranks;
        *self.open.entry(rank).or_default() += 1;
        self.note();
    }

    /// Removes a stream of a rank.
    pub fn leave(&mut self, rank: u32) {
        self.note();
        if let Some(open) = self.open.get_mut(&rank) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&rank);
            }
        }
    }

    /// Returns whether no rank has a stream in this process.
    pub fn are_none(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns whether the ranks in this process want at least half of the rows of a block. With fewer ranks, reading
    /// only the wanted rows takes fewer bytes than reading whole blocks.
    fn are_many(&self) -> bool {
        let here = self.open.len() as u64;
        here > 1 && 2 * here >= self.num_ranks
    }

    /// Returns whether enough ranks are in this process, or were within the last 10 s: ranks begin the next epoch one
    /// after the other.
    pub fn are_several(&self) -> bool {
        self.several_until().is_some_and(Until::is_ahead)
    }

    /// Returns until when [`Members::are_several`] holds if no stream begins or ends; `None` if it never held.
    pub fn several_until(&self) -> Option<Until> {
        if self.are_many() { Some(Until::Told) } else { self.shared.map(|shared| Until::Time(shared + LINGER)) }
    }

    fn note(&mut self) {
        if self.are_many() {
            self.shared = Some(Instant::now());
        }
    }
}
