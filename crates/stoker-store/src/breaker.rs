//! A circuit breaker, which holds requests back while a store answers none.
//!
//! ```text
//!            8 failures, no answer between *        an answer
//! closed ──────────────────────────────► open ─────────────────► slow start ── 2 s ──► closed
//!                                         │ one request a second      twice as many at once every 250 ms
//! ```
//!
//! \* Or as many as a quarter of the requests in flight. Some failures arrive before the first answers when many requests
//! begin at once, because a refused connection is faster than an answer.
//!
//! The layers above retry failed requests, each in its own way. During an outage their retries would be many useless
//! requests, and each layer would find out late that the store is back. When an outage ends, read-only requests that
//! are still in flight are cancelled and made again ([`Breaker::until_back`]): a store that hung may never answer
//! them, and their clients would wait for their timeout.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::channel::mpsc;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Interpret, is_transient, uninterpreted};

/// The number of failures in a row, without a response in between, after which the store counts as out, and the share of
/// the requests in flight that these are at least.
pub(crate) const FAILURES_MAX: u32 = 8;
const FAILED_SHARE: u64 = 4;

/// The interval of the probes: requests that are let through during an outage, to find out whether the store is back.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time for which the breaker holds a request back. After it, the request fails, because its caller may
/// already have waited for long.
const HELD_MAX: Duration = Duration::from_secs(5);

/// The number of requests that may be in flight at the beginning of the slow start. It doubles after each step.
const SLOW_START_REQUESTS: u64 = 4;
const SLOW_START_STEP: Duration = Duration::from_millis(250);
const SLOW_START_STEPS: u32 = 8;

/// The number of entries of a listing that are prefetched for its caller.
const LISTED_AHEAD: usize = 64;

/// The state of the requests to one store; it decides which requests may begin.
#[derive(Debug)]
pub struct Breaker {
    state: Mutex<State>,
    changed: Notify,
    /// The number of outages that ended.
    outages: watch::Sender<u64>,
    counts: Counts,
    /// The runtime on which requests are made. While it is not set, a request is made on the runtime of its caller.
    threads: OnceLock<Handle>,
    /// Interprets errors of other libraries, which may be transient.
    interpret: Interpret,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new(uninterpreted)
    }
}

#[derive(Debug, Default)]
struct Counts {
    answered: AtomicU64,
    failed: AtomicU64,
    held_back: AtomicU64,
}

/// The number of requests to a store by outcome. Each request is counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreRequests {
    /// Requests that the store answered, also with a refusal.
    pub answered: u64,
    /// Requests that the store did not answer, or answered with an error that says that it cannot serve them now.
    pub failed: u64,
    /// Requests that were not made, because the breaker held them back for too long during an outage.
    pub held_back: u64,
}

#[derive(Debug, Default)]
struct State {
    num_failed: u32,
    num_under_way: u64,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default)]
enum Phase {
    #[default]
    Closed,
    Open {
        since: Instant,
        next_probe: Instant,
    },
    SlowStart {
        since: Instant,
    },
}

/// The permit of a request that may begin. Dropping it without reporting an outcome tells the breaker nothing about
/// the store.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
}

/// The error of an outage: the store has answered no request for some time.
#[derive(Debug, Default, thiserror::Error)]
#[error(
    "the store has answered no request for {} s; one request per second is tried until it answers{}",
    elapsed.as_secs(),
    last_of(source.as_deref())
)]
pub struct Out {
    elapsed: Duration,
    /// The error of the request, if it was made.
    source: Option<Box<object_store::Error>>,
}

fn last_of(error: Option<&object_store::Error>) -> String {
    error.map_or_else(String::new, |error| format!("; last error: {error}"))
}

impl Out {
    /// The same error for a request that was made and failed with `error`.
    pub(crate) fn after(self, error: object_store::Error) -> Self {
        Self { source: Some(Box::new(error)), ..self }
    }
}

impl Breaker {
    /// A breaker that lets requests begin. `interpret` knows errors of other libraries that a store may return.
    pub fn new(interpret: Interpret) -> Self {
        Self {
            state: Mutex::default(),
            changed: Notify::new(),
            outages: watch::Sender::default(),
            counts: Counts::default(),
            threads: OnceLock::new(),
            interpret,
        }
    }

    /// Makes all later requests on this runtime, whichever runtime their callers are on. A connection that several
    /// callers share then never waits for a runtime that computes. The first call decides.
    pub fn keep_requests_on(&self, threads: Handle) {
        self.threads.set(threads).ok();
    }

    /// Makes a request on the runtime for requests. Dropping the future cancels the request.
    pub(crate) async fn at_home<T: Send + 'static>(
        &self,
        request: impl Future<Output = object_store::Result<T>> + Send + 'static,
    ) -> object_store::Result<T> {
        match self.other_threads() {
            None => request.await,
            Some(threads) => AbortOnDropHandle::new(threads.spawn(request)).await?,
        }
    }

    /// Reads a listing on the runtime for requests.
    pub(crate) fn stream_at_home<T: Send + 'static>(
        &self,
        stream: BoxStream<'static, object_store::Result<T>>,
    ) -> BoxStream<'static, object_store::Result<T>> {
        let Some(threads) = self.other_threads() else { return stream };
        let (sender, receiver) = mpsc::channel(LISTED_AHEAD);
        let reading = AbortOnDropHandle::new(threads.spawn(stream.map(Ok).forward(sender)));
        receiver.inspect(move |_| _ = &reading).boxed()
    }

    /// The runtime for requests, unless the caller is on it already.
    fn other_threads(&self) -> Option<&Handle> {
        let is_caller = |threads: &&Handle| Handle::try_current().is_ok_and(|current| current.id() == threads.id());
        self.threads.get().filter(|threads| !is_caller(threads))
    }

    /// Waits until a request may begin, for at most five seconds ([`HELD_MAX`]).
    ///
    /// # Errors
    /// [`Out`] when the request may not begin within that time.
    pub(crate) async fn enter(&self) -> Result<Pass<'_>, Out> {
        let begun = Instant::now();
        loop {
            let changed = self.changed.notified();
            let now = Instant::now();
            let wait = match self.state.lock().admit(now) {
                Ok(()) => return Ok(Pass { breaker: self }),
                Err(held) if now - begun >= HELD_MAX => {
                    self.counts.held_back.fetch_add(1, Relaxed);
                    return Err(Out { elapsed: held.elapsed, source: None });
                }
                Err(held) => held.wait.min(HELD_MAX.saturating_sub(now - begun)),
            };
            // The loop checks again both after a change of the state and after the timeout.
            let _ = timeout(wait.max(Duration::from_millis(1)), changed).await;
        }
    }

    /// Waits until the next outage ends: until the store answers a request again.
    pub(crate) fn until_back(&self) -> impl Future<Output = ()> + use<> {
        let mut outages = self.outages.subscribe();
        async move {
            if outages.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// The number of requests so far by outcome.
    pub fn requests(&self) -> StoreRequests {
        let Counts { answered, failed, held_back } = &self.counts;
        StoreRequests {
            answered: answered.load(Relaxed),
            failed: failed.load(Relaxed),
            held_back: held_back.load(Relaxed),
        }
    }
}

/// The refusal of a request that has to wait: for how long at most, and how long the outage has lasted.
#[derive(Debug)]
struct HeldBack {
    wait: Duration,
    elapsed: Duration,
}

impl State {
    /// Decides whether a request may begin now. If it may, it counts as in flight.
    fn admit(&mut self, now: Instant) -> Result<(), HeldBack> {
        match &mut self.phase {
            Phase::Closed => {}
            Phase::Open { next_probe, .. } if now >= *next_probe => *next_probe = now + PROBE_INTERVAL,
            Phase::Open { since, next_probe } => {
                return Err(HeldBack { wait: *next_probe - now, elapsed: now - *since });
            }
            Phase::SlowStart { since } => {
                let steps = (now - *since).as_millis() / SLOW_START_STEP.as_millis();
                if steps >= u128::from(SLOW_START_STEPS) {
                    self.phase = Phase::Closed;
                } else if self.num_under_way >= SLOW_START_REQUESTS << steps {
                    return Err(HeldBack { wait: SLOW_START_STEP, elapsed: Duration::ZERO });
                }
            }
        }
        self.num_under_way += 1;
        Ok(())
    }

    /// Records a response. Returns whether it ended an outage.
    fn answered(&mut self, now: Instant) -> bool {
        self.num_failed = 0;
        let Phase::Open { since, .. } = self.phase else { return false };
        tracing::info!(seconds = (now - since).as_secs_f64(), "the store answers again");
        self.phase = Phase::SlowStart { since: now };
        true
    }

    /// Records a failure. Returns how long the outage has lasted; `None` when there is no outage.
    fn failed(&mut self, now: Instant) -> Option<Duration> {
        self.num_failed = self.num_failed.saturating_add(1);
        if let Phase::Open { since, .. } = self.phase {
            return Some(now - since);
        }
        if self.num_failed < FAILURES_MAX || u64::from(self.num_failed) < self.num_under_way / FAILED_SHARE {
            return None;
        }
        tracing::warn!("the store does not answer; one request per second is tried until it does");
        self.phase = Phase::Open { since: now, next_probe: now + PROBE_INTERVAL };
        Some(Duration::ZERO)
    }
}

impl Pass<'_> {
    /// Whether the breaker counts this error as a failure of the store.
    pub fn is_failure(&self, error: &object_store::Error) -> bool {
        is_transient(error, self.breaker.interpret)
    }

    /// Records that the store answered, also with a refusal.
    pub fn answered(self) {
        self.breaker.counts.answered.fetch_add(1, Relaxed);
        if self.breaker.state.lock().answered(Instant::now()) {
            self.breaker.outages.send_modify(|number| *number += 1);
        }
    }

    /// Records that the store did not answer, or answered that it cannot serve the request now. Returns the error of
    /// the outage, if there is one.
    pub fn failed(self) -> Option<Out> {
        self.breaker.counts.failed.fetch_add(1, Relaxed);
        let elapsed = self.breaker.state.lock().failed(Instant::now())?;
        Some(Out { elapsed, source: None })
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let mut state = self.breaker.state.lock();
        state.num_under_way -= 1;
        let may_others_go = !matches!(state.phase, Phase::Closed);
        drop(state);
        if may_others_go {
            self.breaker.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{FAILURES_MAX, Phase, SLOW_START_REQUESTS, State};

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Makes a request that begins and ends at once, if it may begin. Returns whether it began.
    fn request(state: &mut State, now: Instant, is_answered: bool) -> bool {
        let may_begin = state.admit(now).is_ok();
        if may_begin {
            state.num_under_way -= 1;
            if is_answered {
                state.answered(now);
            } else {
                state.failed(now);
            }
        }
        may_begin
    }

    fn open(now: Instant) -> State {
        let mut state = State::default();
        (0..FAILURES_MAX).for_each(|_| assert!(request(&mut state, now, false)));
        state
    }

    #[test]
    fn failures_between_answers_hold_nothing_back() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!((0..1_000).all(|number| request(&mut state, now, number % FAILURES_MAX == 0)));
    }

    #[test]
    fn the_first_failures_of_many_requests_are_no_outage() {
        let (mut state, now) = (State::default(), Instant::now());
        let fail = |state: &mut State, count| {
            for _ in 0..count {
                state.failed(now);
                state.num_under_way -= 1;
            }
        };
        (0..400).for_each(|_| state.admit(now).expect("no outage"));
        fail(&mut state, 79);
        assert!(matches!(state.phase, Phase::Closed));
        state.answered(now);
        fail(&mut state, 63);
        assert!(matches!(state.phase, Phase::Closed), "four times as many are in flight");
        fail(&mut state, 1);
        assert!(matches!(state.phase, Phase::Open { .. }));
    }

    #[test]
    fn an_outage_costs_one_request_a_second() {
        let begun = Instant::now();
        let mut state = open(begun);
        let asked = (0..10_000).filter(|number| request(&mut state, begun + millis(*number), false)).count();
        assert_eq!(asked, 9);
        let held = state.admit(begun + millis(9_300)).expect_err("a probe began 300 ms ago");
        assert_eq!((held.wait, held.elapsed), (millis(700), millis(9_300)));
        // A probe that is cancelled does not stop later probes.
        assert!(state.admit(begun + millis(10_000)).is_ok());
        assert!(state.admit(begun + millis(10_999)).is_err() && state.admit(begun + millis(11_000)).is_ok());
    }

    #[test]
    fn requests_begin_slowly_after_an_outage_and_soon_all_at_once() {
        let begun = Instant::now();
        let mut state = open(begun);
        let back = begun + millis(1_000);
        assert!(request(&mut state, back, true));
        let mut under_way = Vec::new();
        for step in [0, 249, 250, 500, 1_000, 1_999] {
            while state.num_under_way < 10_000 && state.admit(back + millis(step)).is_ok() {}
            under_way.push(state.num_under_way);
        }
        assert_eq!(under_way, [1, 1, 2, 4, 16, 128].map(|times| times * SLOW_START_REQUESTS));
        assert!(state.admit(back + millis(2_000)).is_ok() && matches!(state.phase, Phase::Closed));
        state.failed(back);
        assert!(matches!(state.phase, Phase::Closed), "one failure is none");
    }

    #[test]
    fn a_store_that_fails_again_is_out_again() {
        let begun = Instant::now();
        let mut state = open(begun);
        assert!(request(&mut state, begun + millis(1_000), true));
        (0..FAILURES_MAX).for_each(|_| assert!(request(&mut state, begun + millis(1_001), false)));
        assert!(!request(&mut state, begun + millis(1_002), true));
    }
}
