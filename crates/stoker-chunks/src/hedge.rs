//! When a slow read gets a second GET.
//!
//! The slowest few reads of an object store take many times as long as the others, and a batch waits for all of its reads. A
//! second request for those that are slow beyond their peers ends the wait at the price of a few per cent more requests: the
//! hedged requests of Dean and Barroso, "The Tail at Scale", Communications of the ACM 56(2), 2013.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

/// Reads that are remembered.
const PEERS_MAX: usize = 256;

/// Fewer reads than these do not tell what is slow.
const PEERS_MIN: usize = 16;

/// A read is slow when it takes so many times what all but a twentieth of its peers take.
const SLOWER_THAN_PEERS: u32 = 3;

/// No read is slow before, and the time between two looks for a free permit.
pub(crate) const PATIENCE_MIN: Duration = Duration::from_millis(200);

/// No read is slow before while its peers are too few.
const PATIENCE_UNKNOWN: Duration = Duration::from_secs(1);

/// Bodies of fewer bytes do not tell how fast bytes come.
pub(crate) const BODY_BYTES_MIN: u64 = 64 << 10;

const MIB: f64 = (1 << 20) as f64;

/// What a hedge costs; a read earns one.
const HEDGE_COST: u32 = 10;

/// What reads earn together at most: eight hedges.
const CREDIT_MAX: u32 = 8 * HEDGE_COST;

/// How long recent reads took, and how many hedges may begin: a tenth of the reads, and eight at first.
#[derive(Debug)]
pub(crate) struct Hedges {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// From the request to the first byte.
    first_byte: Recent,
    /// From the first byte to the last, per MiB.
    per_mib: Recent,
    credit: u32,
}

impl Hedges {
    /// No peers yet.
    pub fn new() -> Self {
        Self { state: Mutex::new(State { first_byte: Recent::new(), per_mib: Recent::new(), credit: CREDIT_MAX }) }
    }

    /// Counts a read, which earns a share of a hedge.
    pub fn add_read(&self) {
        let mut state = self.state.lock();
        state.credit = (state.credit + 1).min(CREDIT_MAX);
    }

    /// Takes a hedge out of the share, unless it is used up.
    pub fn try_take(&self) -> bool {
        let mut state = self.state.lock();
        let left = state.credit.checked_sub(HEDGE_COST);
        state.credit = left.unwrap_or(state.credit);
        left.is_some()
    }

    /// Learns from a body that came whole.
    pub fn add_peer(&self, first_byte: Duration, body: Duration, bytes: u64) {
        let mut state = self.state.lock();
        state.first_byte.add(first_byte);
        if bytes >= BODY_BYTES_MIN {
            state.per_mib.add(body.mul_f64(MIB / bytes as f64));
        }
    }

    /// After how long a read of so many bytes is slow.
    pub fn patience(&self, bytes: u64) -> Duration {
        let state = self.state.lock();
        let expected = state.first_byte.p95() + state.per_mib.p95().mul_f64(bytes as f64 / MIB);
        let known = state.first_byte.values.len() >= PEERS_MIN;
        (expected * SLOWER_THAN_PEERS).max(if known { PATIENCE_MIN } else { PATIENCE_UNKNOWN })
    }
}

/// The latest durations.
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

    /// The duration that all but a twentieth do not exceed; zero when there is none.
    fn p95(&self) -> Duration {
        let mut values: Vec<Duration> = self.values.iter().copied().collect();
        if values.is_empty() {
            return Duration::ZERO;
        }
        let index = values.len() * 95 / 100;
        *values.select_nth_unstable(index).1
    }
}
