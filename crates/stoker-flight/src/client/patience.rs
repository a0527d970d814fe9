//! Calls that are made again while nobody answers.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::Result;

/// Waits before asking again double from the first to the last of these.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// How long the calls of a connection are made again while servers, or the store of a lake, cannot be reached. Cheap to clone; clones
/// share what they know.
#[derive(Clone, Debug)]
pub(crate) struct Patience {
    budget: Duration,
    /// Whether somebody answered once. Until then, a target may be one that never will, and its first failure is told at once.
    is_known: Arc<AtomicBool>,
}

/// The waits between the attempts of one call.
#[derive(Debug)]
pub(crate) struct Waits(Duration);

impl Default for Waits {
    fn default() -> Self {
        Self(WAIT_FIRST)
    }
}

impl Waits {
    /// How long to wait before the next attempt: half of a span that doubles each time, to all of it, so that the ranks of a job do not
    /// come back in step.
    pub fn next(&mut self) -> Duration {
        let random = RandomState::new().hash_one(0) as u32;
        let wait = self.0.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX));
        self.0 = (self.0 * 2).min(WAIT_MAX);
        wait
    }
}

impl Patience {
    /// Patience with a target that nobody asked anything yet.
    pub fn new(budget: Duration) -> Self {
        Self { budget, is_known: Arc::default() }
    }

    /// Patience from the first call on, for a target that answered before: to another process, or before a fork.
    pub fn with_known(budget: Duration) -> Self {
        Self { budget, is_known: Arc::new(AtomicBool::new(true)) }
    }

    /// For how long calls are made again.
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Makes a call that may be repeated until it is answered, be it with an error, or the budget is used up. The last attempt begins when
    /// the budget ends. `attempted` says what the call is for: `planning a stream`.
    ///
    /// # Errors
    /// The answer's; [`GaveUp`](crate::Error::GaveUp) where several attempts found nobody who answers.
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
            tokio::time::sleep(waits.next().min(left)).await;
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

    /// A call that nobody answers before its `answered`th attempt, which fails for good or gives the number.
    async fn ask(patience: &Patience, attempts: &Cell<u32>, answered: u32, is_good: bool) -> Result<u32> {
        let call = || async {
            attempts.set(attempts.get() + 1);
            match attempts.get() {
                now if now < answered => Err(Error::broken("cut")),
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
        assert!(text.ends_with("cut") && attempts.get() > 1, "{text}");
    }

    #[tokio::test]
    async fn the_first_contact_fails_at_once() {
        let (attempts, patience) = (Cell::new(0), Patience::new(Duration::from_secs(60)));
        let error = ask(&patience, &attempts, 2, true).await.expect_err("nobody answers");
        assert!(matches!(error, Error::Interrupted { .. }) && attempts.get() == 1, "{error}");
        ask(&patience, &attempts, 1, true).await.expect("an answer");
        attempts.set(0);
        assert_eq!(ask(&patience, &attempts, 3, true).await.expect("an answer"), 3);
        assert!(ask(&Patience::with_known(Duration::ZERO), &Cell::new(0), 2, true).await.is_err());
    }
}
