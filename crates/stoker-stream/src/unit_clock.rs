//! What the time of a unit went to.

use std::future::Future;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Stalls;

/// Measures a unit from its start to its end, and for how much of it at least one read of storage was under way.
#[derive(Debug)]
pub(crate) struct UnitClock {
    begun: Instant,
    reads: Mutex<Reads>,
}

#[derive(Debug, Default)]
struct Reads {
    num_under_way: usize,
    /// When the first of those under way began.
    since: Option<Instant>,
    /// The time of those before.
    total: Duration,
}

impl UnitClock {
    /// A clock that begins now.
    pub fn start() -> Self {
        Self { begun: Instant::now(), reads: Mutex::default() }
    }

    /// Waits for a read of storage, and counts its time once, however many are under way.
    pub async fn read<F: Future>(&self, read: F) -> F::Output {
        let _under_way = UnderWay::begin(&self.reads);
        read.await
    }

    /// What the time up to now went to: reads of storage, and the rest.
    pub fn spans(&self) -> Stalls {
        let storage = self.reads.lock().total;
        Stalls { storage, decode: self.begun.elapsed().saturating_sub(storage), ..Stalls::default() }
    }
}

/// A read that ends when this is dropped.
struct UnderWay<'a>(&'a Mutex<Reads>);

impl<'a> UnderWay<'a> {
    fn begin(reads: &'a Mutex<Reads>) -> Self {
        let mut state = reads.lock();
        state.num_under_way += 1;
        state.since.get_or_insert_with(Instant::now);
        drop(state);
        Self(reads)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.num_under_way -= 1;
        if state.num_under_way == 0
            && let Some(since) = state.since.take()
        {
            state.total += since.elapsed();
        }
    }
}
