//! Retries calls while no server answers.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Result;

/// The wait before a retry doubles with each attempt, from the first of these durations to the second.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The retry policy of a connection: how long it retries calls while servers, or the object store of a lake, cannot be
/// reached. Cheap to clone; clones share whether the target ever answered.
#[derive(Clone, Debug)]
pub struct Patience {
    budget: Duration,
    /// Whether the target answered once. Until then the target may be a wrong address, and a failed call is not
    /// retried.
    is_known: Arc<AtomicBool>,
}

/// The waits between the attempts of one call.
#[derive(Debug)]
pub struct Waits(Duration);

impl Default for Waits {
    fn default() -> Self {
        Self(WAIT_FIRST)
    }
}

impl Waits {
    /// Returns how long to wait before the next attempt: a random time between half of a duration and all of it, so
    /// that the ranks of a job do not retry together. The duration doubles with each attempt.
    pub fn pause(&mut self) -> Duration {
        let random = (RandomState::new().hash_one(0) >> 32) as u32;
        let wait = self.0.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX));
        self.0 = (self.0 * 2).min(WAIT_MAX);
        wait
    }
}

impl Patience {
    /// Creates the policy for a target that was not called yet.
    pub fn new(budget: Duration) -> Self {
        Self { budget, is_known: Arc::default() }
    }

    /// Creates the policy for a target that answered before, to another process or before a fork: even its first call
    /// is retried.
    pub fn with_known(budget: Duration) -> Self {
        Self { budget, is_known: Arc::new(AtomicBool::new(true)) }
    }

    /// Returns how long calls are retried.
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Makes a call that may be repeated, until it succeeds, it fails with an error that is not transient, or the retry
    /// budget ends. The last attempt begins when the budget ends. `attempted` names the call in errors, for example
    /// `planning a stream`.
    ///
    /// # Errors
    /// The error of the call; [`GaveUp`](crate::Error::GaveUp) after several failed attempts.
    pub async fn ask<T, F>(&self, attempted: &str, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let (begun, mut waits) = (Instant::now(), Waits::default());
        let mut attempts = 1;
        loop {
            let error = match call().await {
                Err(error) if error.kind().is_transient() => error,
                answer => {
                    self.is_known.store(true, Ordering::Relaxed);
                    return answer;
                }
            };
            let left = self.budget.saturating_sub(begun.elapsed());
            if left.is_zero() || !self.is_known.load(Ordering::Relaxed) {
                return Err(error.after(attempted, attempts, begun.elapsed()));
            }
            tracing::debug!(%error, attempted, attempts, "asking again");
            tokio::time::sleep(waits.pause().min(left)).await;
            attempts += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use stoker_types::ErrorKind;

    use super::*;
    use crate::Error;

    /// Makes a call that fails with a transient error before its attempt number `answered`. That attempt then returns
    /// its number, or fails with a permanent error.
    async fn ask(patience: &Patience, attempts: &Cell<u32>, answered: u32, is_good: bool) -> Result<u32> {
        let call = || async {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                now if now < answered => Err(Error::Stopping),
                now if is_good => Ok(now),
                _ => Err(Error::invalid("no")),
            }
        };
        patience.ask("planning a stream", call).await
    }

    #[tokio::test]
    async fn what_is_not_answered_is_asked_again_until_the_budget_ends() {
        let attempts = Cell::new(0);
        let patience = Patience::with_known(Duration::from_secs(60));
        assert_eq!(ask(&patience, &attempts, 4, true).await.expect("an answer"), 4);
        attempts.set(0);
        assert_eq!(ask(&patience, &attempts, 3, false).await.expect_err("an answer").kind(), ErrorKind::InvalidRequest);
        assert_eq!(attempts.get(), 3, "an error is an answer");
        attempts.set(0);
        let patience = Patience::with_known(Duration::from_millis(120));
        let error = ask(&patience, &attempts, u32::MAX, true).await.expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.starts_with(&format!("planning a stream failed {} times in ", attempts.get())), "{text}");
        assert!(text.ends_with("reconnect") && attempts.get() > 1, "{text}");
    }

    #[tokio::test]
    async fn the_first_contact_fails_at_once() {
        let (attempts, patience) = (Cell::new(0), Patience::new(Duration::from_secs(60)));
        let error = ask(&patience, &attempts, 2, true).await.expect_err("nobody answers");
        assert!(matches!(error, Error::Stopping) && attempts.get() == 1, "{error}");
        ask(&patience, &attempts, 1, true).await.expect("an answer");
        attempts.set(0);
        assert_eq!(ask(&patience, &attempts, 3, true).await.expect("an answer"), 3);
        assert!(ask(&Patience::with_known(Duration::ZERO), &Cell::new(0), 2, true).await.is_err());
    }
}
