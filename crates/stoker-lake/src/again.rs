//! Requests that only read, made again after transient faults.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::Result;

/// Attempts in all.
const ATTEMPTS_MAX: u32 = 6;

/// Nothing is tried again after so long: stores that cannot be reached were tried again by their clients.
const SPAN: Duration = Duration::from_secs(10);

/// The wait before the second attempt, at most; it doubles from there.
const WAIT_FIRST_MILLIS: u64 = 100;

/// Runs a request that changes nothing until it succeeds or fails for good. The clients of stores do this for most requests, but not
/// for listings whose body breaks off.
///
/// # Errors
/// The last error of `attempt`.
pub(crate) async fn again<T, F>(mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
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

    use stoker_types::ErrorKind;

    use super::again;
    use crate::Error;

    fn error(kind: ErrorKind) -> Error {
        Error::Storage { attempted: "listing".into(), kind, source: "cut".into() }
    }

    #[tokio::test]
    async fn transient_faults_are_tried_again_and_others_are_not() {
        let attempts = Cell::new(0);
        let cut_twice = async || {
            attempts.set(attempts.get() + 1);
            if attempts.get() <= 2 { Err(error(ErrorKind::Unavailable)) } else { Ok(attempts.get()) }
        };
        assert_eq!(again(cut_twice).await.expect("the third attempt"), 3);
        attempts.set(0);
        let denied = async || {
            attempts.set(attempts.get() + 1);
            Err::<(), _>(error(ErrorKind::PermissionDenied))
        };
        assert_eq!(again(denied).await.expect_err("denied").kind(), ErrorKind::PermissionDenied);
        assert_eq!(attempts.get(), 1);
    }
}
