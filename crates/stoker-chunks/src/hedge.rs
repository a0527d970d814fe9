//! Decides when a slow read gets a second GET.
//!
//! The slowest few reads of an object store take many times as long as the others, and a batch waits for all of its
//! reads. A second GET for a read that takes much longer than others ends the wait, at the cost of a few per cent more
//! requests. These are the hedged requests of Dean and Barroso, "The Tail at Scale", Communications of the ACM 56(2),
//! 2013.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// The number of recent reads whose durations are kept.
const PEERS_MAX: usize = 256;

/// The number of reads that are needed to tell which read is slow.
const PEERS_MIN: usize = 16;

/// A read is slow if it takes this many times the 95th percentile of recent reads.
const SLOWER_THAN_PEERS: u32 = 3;

/// The minimum time before a read counts as slow, and the interval at which a slow read looks for a free permit.
pub(crate) const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// The minimum time before a read counts as slow while there are too few recent reads.
const PATIENCE_UNKNOWN: Duration = Duration::from_secs(1);

/// Smaller bodies, in bytes, say nothing about the transfer rate.
pub(crate) const BODY_BYTES_MIN: u64 = 64 << 10;

const MIB: f64 = (1 << 20) as f64;

/// The credit that a hedge costs. A read earns a credit of 1.
const HEDGE_COST: u32 = 10;

/// The maximum credit: eight hedges.
const CREDIT_MAX: u32 = 8 * HEDGE_COST;

/// The durations of recent reads, and the credit for hedges: a tenth of the reads may be hedged, and eight at first.
#[derive(Debug)]
pub(crate) struct Hedges {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The times from the request to the first byte.
    first_byte: Recent,
    /// The times from the first byte to the last, per MiB.
    per_mib: Recent,
    credit: u32,
}

impl Hedges {
    /// Starts without durations and with the full credit.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { first_byte: Recent::new(), per_mib: Recent::new(), credit: CREDIT_MAX }) }
    }

    /// Counts a read, which earns a tenth of a hedge.
    pub fn add_read(&self) {
        let mut state = self.state.lock();
        state.credit = (state.credit + 1).min(CREDIT_MAX);
    }

    /// Takes the credit of a hedge; returns `false` if there is not enough.
    pub fn try_take(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.credit.checked_sub(HEDGE_COST);
        state.credit = left.unwrap_or(state.credit);
        left.is_some()
    }

    /// Adds the durations of a complete read.
    pub fn add_peer(&self, first_byte: Duration, body: Duration, bytes: u64) {
        let mut state = self.state.lock();
        state.first_byte.add(first_byte);
        if bytes >= BODY_BYTES_MIN {
            state.per_mib.add(body.mul_f64(MIB / bytes as f64));
        }
    }

    /// Returns how long a read of `bytes` bytes may take before it counts as slow.
    pub fn patience(&self, bytes: u64) -> Duration {
        let state = self.state.lock();
        let expected = state.first_byte.p95() + state.per_mib.p95().mul_f64(bytes as f64 / MIB);
        let known = state.first_byte.values.len() >= PEERS_MIN;
        (expected * SLOWER_THAN_PEERS).max(if known { PATIENCE_MIN } else { PATIENCE_UNKNOWN })
    }
}

/// The most recent durations.
#[derive(Debug)]
struct Recent {
    values: VecDeque<Duration>,
}

impl Recent {
    fn new() -> Self {
        Self { values: VecDeque::with_capacity(PEERS_MAX) }
    }

    fn add(&mut self, value: Duration) {
        if self.values.len() == PEERS_MAX {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// Returns the 95th percentile of the durations; zero if there are none.
    fn p95(&self) -> Duration {
        let mut values: Vec<Duration> = self.values.iter().copied().collect();
        if values.is_empty() {
            return Duration::ZERO;
        }
        let index = values.len() * 95 / 100;
        *values.select_nth_unstable(index).1
    }
}
