//! Retries of transient faults.

use std::future::Future;
use std::time::Duration;

use stoker_types::ErrorKind;

/// How often and how long transient faults are retried.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Attempts in all, the first included.
    pub attempts_max: u32,
    /// The wait before the second attempt; it doubles from there, plus up to half of it at random.
    pub first_wait: Duration,
    /// The longest wait.
    pub wait_max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { attempts_max: 5, first_wait: Duration::from_millis(100), wait_max: Duration::from_secs(5) }
    }
}

/// Runs `attempt` until it succeeds, fails for good, or the policy is used up. `on_retry` is told of every repetition.
///
/// # Errors
/// The last error of `attempt`.
pub async fn with_retries<T, E, F>(
    policy: RetryPolicy,
    kind: impl Fn(&E) -> ErrorKind,
    mut on_retry: impl FnMut(&E),
    mut attempt: impl FnMut() -> F,
) -> Result<T, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut wait = policy.first_wait;
    for _ in 1..policy.attempts_max {
        match attempt().await {
            Err(error) if kind(&error).is_transient() => {
                on_retry(&error);
                tokio::time::sleep(wait + jitter(wait / 2)).await;
                wait = (wait * 2).min(policy.wait_max);
            }
            done => return done,
        }
    }
    attempt().await
}

/// A share of `span` that differs between callers; it only spreads load, no result depends on it.
fn jitter(span: Duration) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(std::thread::current().id());
    span.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
}
