//! Measures where the time of a unit goes.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use stoker_clock::Clock;
use stoker_types::{Moment, Stalls};

/// Measures the time from the start of a unit, and the time during which at least one read of storage was in flight.
#[derive(Debug)]
pub(crate) struct UnitClock {
    clock: Clock,
    begun: Moment,
    reads: Mutex<Reads>,
}

#[derive(Debug, Default)]
struct Reads {
    num_under_way: usize,
    /// The time at which the first of the reads in flight began.
    since: Option<Moment>,
    /// The total time of earlier reads.
    total: Duration,
}

impl UnitClock {
    /// Starts to measure now, by `clock`.
    pub fn start(clock: &Clock) -> Self {
        Self { begun: clock.now(), clock: clock.clone(), reads: Mutex::default() }
    }

    /// Waits for a read of storage. The time of concurrent reads is counted once.
    pub async fn read<F: Future>(&self, read: F) -> F::Output {
        let _under_way = UnderWay::begin(self);
        read.await
    }

    /// Returns the time since the start, divided into reads of storage and the rest.
    pub fn spans(&self) -> Stalls {
        let storage = self.reads.lock().total;
        Stalls { storage, decode: self.clock.since(self.begun).saturating_sub(storage), ..Stalls::default() }
    }
}

/// A read in flight, which ends when this is dropped.
struct UnderWay<'a>(&'a UnitClock);

impl<'a> UnderWay<'a> {
    fn begin(unit: &'a UnitClock) -> Self {
        let mut state = unit.reads.lock();
        state.num_under_way += 1;
        state.since.get_or_insert_with(|| unit.clock.now());
        drop(state);
        Self(unit)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.reads.lock();
        state.num_under_way -= 1;
        if state.num_under_way == 0
            && let Some(since) = state.since.take()
        {
            state.total += self.0.clock.since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::pin::pin;

    use futures::FutureExt;
    use futures::future::join;
    use stoker_clock::ManualClock;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn spans(storage: u32, decode: u32) -> Stalls {
        Stalls { storage: storage * SECOND, decode: decode * SECOND, ..Stalls::default() }
    }

    #[test]
    fn reads_at_the_same_time_count_once_and_all_else_is_decoding() {
        let time = ManualClock::new();
        let clock = Clock::from(&time);
        let unit = UnitClock::start(&clock);
        let step = async |wait: u32, length: u32| {
            clock.sleep(wait * SECOND).await;
            unit.read(clock.sleep(length * SECOND)).await;
        };
        // Reads take the seconds 1 to 5 and 3 to 6, and after a pause 8 to 9.
        time.run(join(step(1, 4), step(3, 3)));
        assert_eq!(unit.spans(), spans(5, 1));
        time.run(step(2, 1));
        assert_eq!(unit.spans(), spans(6, 3));
        time.advance(SECOND);
        assert_eq!(unit.spans(), spans(6, 4));
    }

    #[test]
    fn a_read_that_is_cancelled_counts_up_to_then() {
        let time = ManualClock::new();
        let unit = UnitClock::start(&Clock::from(&time));
        {
            let mut read = pin!(unit.read(pending::<()>()));
            assert!(read.as_mut().now_or_never().is_none());
            time.advance(2 * SECOND);
            assert_eq!(unit.spans(), spans(0, 2), "a read counts when it ends");
        }
        time.advance(SECOND);
        assert_eq!(unit.spans(), spans(2, 1));
    }
}
