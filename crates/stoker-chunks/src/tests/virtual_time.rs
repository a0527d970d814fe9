//! Time that passes only when nothing else can happen.

use std::collections::BTreeMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::clock::Clock;

/// A clock that jumps to the next timer when the future that it runs waits for nothing else. Clones are the same clock.
#[derive(Clone, Debug, Default)]
pub(super) struct VirtualTime {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    now: Duration,
    timers: BTreeMap<(Duration, u64), Waker>,
    num_timers: u64,
}

impl VirtualTime {
    /// Runs a future to its end. Panics if the future waits for something that cannot happen.
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        loop {
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            while !woken.0.swap(false, Ordering::AcqRel) {
                self.advance();
            }
        }
    }

    fn advance(&self) {
        let mut state = self.state.lock();
        let ((deadline, _), waker) = state.timers.pop_first().expect("a timer: nothing else can wake the future");
        state.now = state.now.max(deadline);
        drop(state);
        waker.wake();
    }
}

impl Clock for VirtualTime {
    fn now(&self) -> Duration {
        self.state.lock().now
    }

    fn sleep(&self, wait: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        state.num_timers += 1;
        let key = (state.now + wait, state.num_timers);
        Box::pin(Timer { time: self.clone(), key })
    }
}

#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

struct Timer {
    time: VirtualTime,
    key: (Duration, u64),
}

impl Future for Timer {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.time.state.lock();
        if state.now >= self.key.0 {
            return Poll::Ready(());
        }
        state.timers.insert(self.key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.time.state.lock().timers.remove(&self.key);
    }
}
