//! Retries calls while no server answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use stoker_clock::{Clock, Environment, Random};

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
    environment: Environment,
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
    pub fn pause(&mut self, random: &Random) -> Duration {
        let wait = self.0.mul_f64(0.5 + 0.5 * random.fraction());
        self.0 = (self.0 * 2).min(WAIT_MAX);
        wait
    }
}

impl Patience {
    /// Creates the policy for a target that was not called yet.
    pub fn new(budget: Duration) -> Self {
        Self { budget, is_known: Arc::default(), environment: Environment::default() }
    }

    /// Creates the policy for a target that answered before, to another process or before a fork: even its first call
    /// is retried.
    pub fn with_known(budget: Duration) -> Self {
        Self { is_known: Arc::new(AtomicBool::new(true)), ..Self::new(budget) }
    }

    /// Returns the same policy with other time and random numbers than the machine's. Retries, deadlines and keys of
    /// writes take them from here.
    #[must_use]
    pub fn with_environment(self, environment: Environment) -> Self {
        Self { environment, ..self }
    }

    /// Returns how long calls are retried.
    pub fn budget(&self) -> Duration {
        self.budget
    }

    /// Returns the time and the random numbers of the connection.
    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// Returns the clock of the connection.
    pub fn clock(&self) -> &Clock {
        &self.environment.clock
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
        let Environment { clock, random } = &self.environment;
        let (begun, mut waits) = (clock.now(), Waits::default());
        let mut attempts = 1;
        loop {
            let error = match call().await {
                Err(error) if error.kind().is_transient() => error,
                answer => {
                    self.is_known.store(true, Ordering::Relaxed);
                    return answer;
                }
            };
            let left = self.budget.saturating_sub(clock.since(begun));
            if left.is_zero() || !self.is_known.load(Ordering::Relaxed) {
                return Err(error.after(attempted, attempts, clock.since(begun)));
            }
            tracing::debug!(%error, attempted, attempts, "asking again");
            clock.sleep(waits.pause(random).min(left)).await;
            attempts += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use stoker_clock::ManualClock;
    use stoker_types::{ErrorKind, Moment};

    use super::*;
    use crate::Error;

    /// Makes the policy of a target that answered before, with a clock that a test runs and these random numbers.
    fn manual(budget: Duration, numbers: &[u64]) -> (ManualClock, Patience) {
        let time = ManualClock::new();
        let environment = Environment { clock: Clock::from(&time), random: Random::given(numbers) };
        (time, Patience::with_known(budget).with_environment(environment))
    }

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

    /// Checks the moments, in milliseconds, at which a call is attempted that nobody answers.
    #[track_caller]
    fn check_attempts(budget: Duration, number: u64, expected: &[u128]) {
        let (time, patience) = manual(budget, &[number]);
        let attempts = Cell::new(Vec::new());
        let call = || async {
            let mut seen = attempts.take();
            seen.push((time.now() - Moment::START).as_millis());
            attempts.set(seen);
            Err::<(), _>(Error::Stopping)
        };
        let error = time.run(patience.ask("planning a stream", call)).expect_err("nobody answers");
        let seen = attempts.take();
        assert_eq!(seen, expected);
        assert_eq!(time.now(), Moment::START + budget, "the last attempt begins when the budget ends");
        let text = format!("planning a stream failed {} times in {} s", seen.len(), budget.as_secs());
        assert!(error.to_string().starts_with(&text), "{error}");
    }

    #[test]
    fn the_last_attempt_begins_when_the_budget_ends() {
        check_attempts(Duration::from_secs(1), 0, &[0, 25, 75, 175, 375, 775, 1_000]);
        check_attempts(Duration::from_secs(1), u64::MAX, &[0, 50, 150, 350, 750, 1_000]);
        check_attempts(
            Duration::from_secs(20),
            u64::MAX,
            &[0, 50, 150, 350, 750, 1_550, 3_150, 6_350, 11_350, 16_350, 20_000],
        );
    }

    #[test]
    fn waits_double_up_to_a_maximum_and_half_of_each_is_random() {
        for (number, part) in [(0, 0.5), (1 << 63, 0.75), (u64::MAX, 1.0)] {
            let (mut waits, random) = (Waits::default(), Random::given([number]));
            for whole in [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000] {
                assert_eq!(waits.pause(&random), Duration::from_millis(whole).mul_f64(part), "{number:x}");
            }
        }
    }

    #[test]
    fn what_is_not_answered_is_asked_again() {
        let attempts = Cell::new(0);
        let (time, patience) = manual(Duration::from_secs(60), &[0]);
        assert_eq!(time.run(ask(&patience, &attempts, 4, true)).expect("an answer"), 4);
        assert_eq!(time.now(), Moment::START + Duration::from_millis(25 + 50 + 100));
        attempts.set(0);
        let error = time.run(ask(&patience, &attempts, 3, false)).expect_err("an answer");
        assert_eq!((error.kind(), attempts.get()), (ErrorKind::InvalidRequest, 3), "an error is an answer");
        attempts.set(0);
        let error = time.run(ask(&patience, &attempts, u32::MAX, true)).expect_err("nobody answers");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().ends_with("reconnect"), "{error}");
    }

    #[test]
    fn the_first_contact_fails_at_once() {
        let (time, known) = manual(Duration::from_secs(60), &[0]);
        let (attempts, patience) = (Cell::new(0), Patience { is_known: Arc::default(), ..known });
        let error = time.run(ask(&patience, &attempts, 2, true)).expect_err("nobody answers");
        assert!(matches!(error, Error::Stopping) && attempts.get() == 1, "{error}");
        time.run(ask(&patience, &attempts, 1, true)).expect("an answer");
        attempts.set(0);
        assert_eq!(time.run(ask(&patience, &attempts, 3, true)).expect("an answer"), 3);
        let (time, without_budget) = manual(Duration::ZERO, &[0]);
        assert!(time.run(ask(&without_budget, &Cell::new(0), 2, true)).is_err());
    }
}
