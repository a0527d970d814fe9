//! Measures where the time of a unit goes.

use std::future::Future;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use stoker_types::Stalls;

/// Measures the time from the start of a unit, and the time during which at least one read of storage was in flight.
#[derive(Debug)]
pub(crate) struct UnitClock {
    begun: Instant,
    reads: Mutex<Reads>,
}

#[derive(Debug, Default)]
struct Reads {
    num_under_way: usize,
    /// The time at which the first of the reads in flight began.
    since: Option<Instant>,
    /// The total time of earlier reads.
    total: Duration,
}

impl UnitClock {
    /// Makes a clock that starts now.
    pub fn start() -> Self {
        Self { begun: Instant::now(), reads: Mutex::default() }
    }

    /// Waits for a read of storage. The time of concurrent reads is counted once.
    pub async fn read<F: Future>(&self, read: F) -> F::Output {
        let _under_way = UnderWay::begin(&self.reads);
        read.await
    }

    /// Returns the time since the start, divided into reads of storage and the rest.
    pub fn spans(&self) -> Stalls {
        let storage = self.reads.lock().total;
        Stalls { storage, decode: self.begun.elapsed().saturating_sub(storage), ..Stalls::default() }
    }
}

/// A read in flight, which ends when this is dropped.
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
