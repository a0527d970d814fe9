//! Retries of read-only requests after transient faults.

use std::fmt::Display;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use stoker_types::HasKind;

/// The maximum number of attempts, the first one included.
const ATTEMPTS_MAX: u32 = 6;

/// No retry begins after this time. A request that failed because its store is unreachable was already retried by the
/// store's client.
const SPAN: Duration = Duration::from_secs(10);

/// The shortest wait before the second attempt; the longest is twice as much. Both double with each further attempt.
const WAIT_FIRST_MILLIS: u64 = 100;

/// Runs a read-only request until it succeeds, fails with an error that is not transient, or has used up its
/// attempts. The stores' clients retry most requests themselves, but not a listing whose response body breaks off.
///
/// # Errors
/// The error of the last attempt.
pub async fn again<T, E, F>(mut attempt: impl FnMut() -> F) -> Result<T, E>
where
    E: HasKind + Display,
    F: Future<Output = Result<T, E>>,
{
    let started = Instant::now();
    for number in 1..ATTEMPTS_MAX {
        match attempt().await {
            Err(error) if error.kind().is_transient() && started.elapsed() < SPAN => {
                tracing::debug!(%error, number, "asking again");
                let bound = WAIT_FIRST_MILLIS << number.min(6);
                let wait = bound / 2 + RandomState::new().hash_one(number) % (bound / 2);
                tokio::time::sleep(Duration::from_millis(wait)).await;
            }
            done => return done,
        }
    }
    attempt().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use stoker_types::{ErrorKind, HasKind};

    use super::again;

    #[derive(Debug, thiserror::Error)]
    #[error("{0:?}")]
    struct Failed(ErrorKind);

    impl HasKind for Failed {
        fn kind(&self) -> ErrorKind {
            self.0
        }
    }

    #[tokio::test]
    async fn transient_faults_are_tried_again_and_others_are_not() {
        let attempts = Cell::new(0);
        let cut_twice = async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() <= 2 { Err(Failed(ErrorKind::Unavailable)) } else { Ok(attempts.get()) }
        };
        assert_eq!(again(cut_twice).await.expect("the third attempt"), 3);
        attempts.set(0);
        let denied = async || {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(Failed(ErrorKind::PermissionDenied))
        };
        assert_eq!(again(denied).await.expect_err("denied").kind(), ErrorKind::PermissionDenied);
        assert_eq!(attempts.get(), 1);
    }
}
