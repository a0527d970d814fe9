//! Retries of transient faults.

use std::time::Duration;

use stoker_clock::Clock;
use stoker_types::{ErrorKind, Moment};

use crate::{Error, Result};

/// Limits of the retries after transient faults.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// The retry budget: a read that gets no byte for this long fails; 120 s by default. Zero means a single attempt.
    pub budget: Duration,
    /// The maximum number of attempts of one read, the first included and whether or not they get bytes; 1,000 by
    /// default.
    pub attempts_max: u32,
    /// The wait before the second attempt, 100 ms by default. Each attempt that gets no byte doubles the next wait. A
    /// random part of up to half the wait is added.
    pub first_wait: Duration,
    /// The maximum wait, without its random part; 5 s by default.
    pub wait_max: Duration,
    /// A response body that delivers no byte for this long is a transient fault; 5 s by default. Must be more than
    /// zero.
    pub stall_timeout: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(120),
            attempts_max: 1_000,
            first_wait: Duration::from_millis(100),
            wait_max: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(5),
        }
    }
}

/// An error of an attempt, which decides about the next attempt.
pub trait Fault {
    /// Returns the error's kind; transient kinds are retried.
    fn kind(&self) -> ErrorKind;

    /// Returns whether the store is in an outage. Then the next attempt begins at once: the circuit breaker holds it,
    /// without a request, until the store answers again.
    fn is_outage(&self) -> bool;
}

/// Runs `attempt` until it succeeds, fails permanently, or has used up the policy, by the time of `clock`. Calls
/// `on_retry` before each retry.
///
/// # Errors
/// The error of `attempt` if it is permanent; [`Error::GaveUp`] with the last error if the policy is used up.
pub async fn with_retries<T, E, F>(
    policy: RetryPolicy,
    clock: &Clock,
    mut on_retry: impl FnMut(&E),
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T, E>>,
    E: Fault + Into<Error>,
{
    let mut retries = Retries::new(policy, clock);
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        if !error.kind().is_transient() {
            return Err(error.into());
        }
        let Some(wait) = retries.failed(&error) else {
            let last: Error = error.into();
            return Err(retries.gave_up(last.attempted().to_string(), last));
        };
        on_retry(&error);
        clock.sleep(wait).await;
    }
}

/// The state of the attempts of one read.
#[derive(Debug)]
pub(crate) struct Retries<'a> {
    policy: RetryPolicy,
    clock: &'a Clock,
    begun: Moment,
    /// When the last bytes arrived.
    progress: Moment,
    attempts: u32,
    wait: Duration,
}

impl<'a> Retries<'a> {
    /// Begins the first attempt.
    pub fn new(policy: RetryPolicy, clock: &'a Clock) -> Self {
        let now = clock.now();
        Self { policy, clock, begun: now, progress: now, attempts: 0, wait: policy.first_wait }
    }

    /// Records that the attempt that just failed delivered bytes: the retry budget and the waits begin again.
    pub fn progressed(&mut self) {
        self.progress = self.clock.now();
        self.wait = self.policy.first_wait;
    }

    /// Counts a failed attempt. Returns the wait before the next one; `None` if the policy is used up.
    ///
    /// A wait is shortened so that it ends with the retry budget at the latest.
    pub fn failed(&mut self, fault: &impl Fault) -> Option<Duration> {
        self.attempts = self.attempts.saturating_add(1);
        let left = self.policy.budget.saturating_sub(self.clock.since(self.progress));
        if left.is_zero() || self.attempts >= self.policy.attempts_max {
            return None;
        }
        if fault.is_outage() {
            return Some(Duration::ZERO);
        }
        let wait = self.wait.saturating_add(jitter(self.wait / 2));
        self.wait = self.wait.saturating_mul(2).min(self.policy.wait_max);
        Some(wait.min(left))
    }

    /// Returns an error that contains the number of attempts; the last error itself if there was one attempt.
    pub fn gave_up(&self, attempted: String, last: Error) -> Error {
        if self.attempts < 2 {
            return last;
        }
        let elapsed = self.clock.since(self.begun);
        Error::GaveUp { attempted, attempts: self.attempts, elapsed, source: Box::new(last) }
    }
}

/// Returns a random part of `span`. It only spreads load; no result depends on it.
fn jitter(span: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::thread::current().id());
    span.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}
