//! What is asked of a store, and how often.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use crate::{ListedObject, Result};

/// The most attempts of a request. A store's client makes each several times itself.
const ATTEMPTS_MAX: u32 = 4;

/// The shortest wait before the second attempt; the longest is twice as much. Both double with each further attempt.
const WAIT_FIRST_MILLIS: u64 = 100;

/// The read-only requests to a bucket or a web server. Each is one attempt.
#[async_trait::async_trait]
pub(crate) trait Requests: fmt::Debug + Send + Sync {
    /// Returns bytes of an object, and what the response says of the object.
    async fn get(&self, key: &str, range: Range<u64>) -> Result<(Bytes, ListedObject)>;

    /// Returns what the store says of an object; `None` if it does not exist.
    async fn head(&self, key: &str) -> Result<Option<ListedObject>>;

    /// Adds the objects below a folder that come after the last one of `found`, by key.
    async fn list(&self, folder: &str, found: &mut Vec<(String, ListedObject)>) -> Result<()>;
}

/// Reads bytes of an object that was listed.
///
/// # Errors
/// [`Error::Changed`](crate::Error::Changed) if it is another object now; errors of the store after all attempts.
pub(crate) async fn read(
    requests: &dyn Requests,
    key: &str,
    range: Range<u64>,
    listed: &ListedObject,
) -> Result<Bytes> {
    if range.is_empty() {
        return Ok(Bytes::new());
    }
    let mut attempt = 0;
    loop {
        attempt += 1;
        match requests.get(key, range.clone()).await {
            Ok((bytes, now)) => return listed.check(&now).map(|()| bytes),
            Err(error) if error.is_transient() => {
                // A range that a smaller object does not have is refused with an error that says nothing of the object.
                if let Ok(Some(now)) = requests.head(key).await {
                    listed.check(&now)?;
                }
                if attempt >= ATTEMPTS_MAX {
                    return Err(error);
                }
                tracing::debug!(key, %error, attempt, "reading again");
                wait(attempt).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Asks for an object, again after transient errors.
pub(crate) async fn head(requests: &dyn Requests, key: &str) -> Result<Option<ListedObject>> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match requests.head(key).await {
            Err(error) if error.is_transient() && attempt < ATTEMPTS_MAX => wait(attempt).await,
            done => return done,
        }
    }
}

/// Lists the objects below a folder, sorted by key. A listing that breaks off goes on after its last object.
pub(crate) async fn list(requests: &dyn Requests, folder: &str) -> Result<Vec<(String, ListedObject)>> {
    let (mut found, mut attempt) = (Vec::new(), 0);
    loop {
        let before = found.len();
        match requests.list(folder, &mut found).await {
            Ok(()) => break,
            Err(error) if error.is_transient() => {
                // Progress begins the count of attempts anew.
                attempt = if found.len() > before { 1 } else { attempt + 1 };
                if attempt >= ATTEMPTS_MAX {
                    return Err(error);
                }
                tracing::debug!(folder, %error, attempt, "listing again");
                found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                wait(attempt).await;
            }
            Err(error) => return Err(error),
        }
    }
    found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    found.dedup_by(|(one, _), (other, _)| one == other);
    Ok(found)
}

async fn wait(attempt: u32) {
    let bound = WAIT_FIRST_MILLIS << attempt.min(6);
    let millis = bound / 2 + RandomState::new().hash_one(attempt) % (bound / 2);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
