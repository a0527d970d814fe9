//! Retries of transient faults.

use std::time::Duration;

use stoker_types::ErrorKind;

use crate::clock::{Clock, MachineClock};
use crate::{Error, Result};

/// How long and how often transient faults are retried.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// A read that brings no byte for so long fails; 120 s by default. Zero means a single attempt.
    pub budget: Duration,
    /// Attempts of one read in all, the first included, however many bytes they bring; 1,000 by default.
    pub attempts_max: u32,
    /// The wait before the second attempt, 100 ms by default. It doubles from attempt to attempt that brings no byte, plus up
    /// to half of it at random.
    pub first_wait: Duration,
    /// The longest wait, without what is random; 5 s by default.
    pub wait_max: Duration,
    /// A body that brings no byte for so long counts as a transient fault; 5 s by default, and more than zero.
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

/// How an attempt failed, as far as that decides about the next one.
pub trait Fault {
    /// Whether to try again follows from the kind.
    fn kind(&self) -> ErrorKind;

    /// Whether the store answers nobody: then the next attempt waits by itself until it does, and costs nothing.
    fn is_outage(&self) -> bool;
}

/// Runs `attempt` until it succeeds, fails for good, or the policy is used up. `on_retry` is told of every repetition.
///
/// # Errors
/// The error of `attempt` when it is permanent; [`Error::GaveUp`] with the last one when the policy is used up.
pub async fn with_retries<T, E, F>(
    policy: RetryPolicy,
    mut on_retry: impl FnMut(&E),
    mut attempt: impl FnMut() -> F,
) -> Result<T>
where
    F: Future<Output = Result<T, E>>,
    E: Fault + Into<Error>,
{
    let clock = MachineClock::new();
    let mut retries = Retries::new(policy, &clock);
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

/// The failed attempts of one read.
#[derive(Debug)]
pub(crate) struct Retries<'a> {
    policy: RetryPolicy,
    clock: &'a dyn Clock,
    begun: Duration,
    /// When bytes came last.
    progress: Duration,
    attempts: u32,
    wait: Duration,
}

impl<'a> Retries<'a> {
    /// The first attempt begins now.
    pub fn new(policy: RetryPolicy, clock: &'a dyn Clock) -> Self {
        let now = clock.now();
        Self { policy, clock, begun: now, progress: now, attempts: 0, wait: policy.first_wait }
    }

    /// The attempt that fails now brought bytes: the budget and the waits begin anew.
    pub fn progressed(&mut self) {
        self.progress = self.clock.now();
        self.wait = self.policy.first_wait;
    }

    /// Counts a failed attempt. How long to wait before the next one; `None` when the policy is used up.
    ///
    /// The last attempt begins when the budget ends.
    pub fn failed(&mut self, fault: &impl Fault) -> Option<Duration> {
        self.attempts = self.attempts.saturating_add(1);
        let left = self.policy.budget.saturating_sub(self.clock.now().saturating_sub(self.progress));
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

    /// The error that tells what was tried; the last error itself when that was one attempt.
    pub fn gave_up(&self, attempted: String, last: Error) -> Error {
        if self.attempts < 2 {
            return last;
        }
        let elapsed = self.clock.now().saturating_sub(self.begun);
        Error::GaveUp { attempted, attempts: self.attempts, elapsed, source: Box::new(last) }
    }
}

/// A share of `span` that differs between callers; it only spreads load, no result depends on it.
fn jitter(span: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::thread::current().id());
    span.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}
