//! A clock that stands still until it is moved.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use stoker_types::Moment;

/// A clock for tests, which stands still until the test moves it. Clones are the same clock; a
/// [`Clock`](crate::Clock) is made with `Clock::from(&manual_clock)`.
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Moment,
    /// A time since 1970 UTC, and the moment at which the clock showed it.
    unix: (Duration, Moment),
    /// The futures that sleep, by the moment at which they wake and then by their number.
    sleepers: BTreeMap<(Moment, u64), Waker>,
    num_sleeps: u64,
}

impl ManualClock {
    /// Makes a clock that shows [`Moment::START`], and the start of 1970 UTC.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the moment that the clock shows.
    pub fn now(&self) -> Moment {
        self.state.lock().now
    }

    /// Returns the time since 1970 UTC that the clock shows.
    pub fn unix_time(&self) -> Duration {
        let state = self.state.lock();
        let (time, moment) = state.unix;
        time.saturating_add(state.now - moment)
    }

    /// Sets the time since 1970 UTC. [`ManualClock::now`] stays as it is.
    pub fn set_unix_time(&self, time: Duration) {
        let mut state = self.state.lock();
        state.unix = (time, state.now);
    }

    /// Moves the clock, and wakes the sleepers whose time has come, in the order of their times. They see the time to
    /// which the clock was moved.
    pub fn advance(&self, by: Duration) {
        let mut state = self.state.lock();
        state.now += by;
        let (now, mut woken) = (state.now, Vec::new());
        while let Some(sleeper) = state.sleepers.first_entry().filter(|sleeper| sleeper.key().0 <= now) {
            woken.push(sleeper.remove());
        }
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Moves the clock to the moment at which the next sleeper wakes, and wakes that one. Returns `false` if nobody
    /// sleeps.
    pub fn advance_to_next(&self) -> bool {
        let mut state = self.state.lock();
        let Some(((moment, _), waker)) = state.sleepers.pop_first() else { return false };
        state.now = state.now.max(moment);
        drop(state);
        waker.wake();
        true
    }

    /// Returns the number of futures that sleep.
    pub fn num_sleepers(&self) -> usize {
        self.state.lock().sleepers.len()
    }

    /// Runs a future to its end on this thread. Whenever the future waits, the clock jumps to the moment at which the
    /// next sleeper wakes. This is for futures that wait for sleepers and for each other alone, because the clock does
    /// not wait for other threads.
    ///
    /// # Panics
    /// The future waits for something that cannot happen, because nobody sleeps.
    #[track_caller]
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            while !woken.0.swap(false, Ordering::AcqRel) {
                assert!(self.advance_to_next(), "the future waits, and nobody sleeps who could wake it");
            }
        }
    }

    pub(crate) fn sleep(&self, wait: Duration) -> Sleep {
        let mut state = self.state.lock();
        state.num_sleeps += 1;
        let key = (state.now + wait, state.num_sleeps);
        Sleep { clock: self.clone(), key }
    }
}

#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

/// A future that completes when the clock shows a moment.
pub(crate) struct Sleep {
    clock: ManualClock,
    key: (Moment, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state.lock();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.state.lock().sleepers.remove(&self.key);
    }
}
