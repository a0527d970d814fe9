//! Stores that are reopened when they refuse a request, so that credentials that were replaced meanwhile are read.
//!
//! ```text
//! request ──► store ── 401, 403, expired token ──► retry at the reopened store ──┬─ refused ──► the error
//!                                                                                └─ answered ──► becomes the store
//! ```

use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use object_store::Result;
use parking_lot::RwLock;
use tokio::sync::Mutex;

use crate::error::is_denied;

/// How long refused requests are not retried after a reopened store refused a request of the same purpose too.
const PAUSE: Duration = Duration::from_secs(10);

/// Opens a store; returns `None` if that fails.
pub type Open<S> = Box<dyn Fn() -> BoxFuture<'static, Option<S>> + Send + Sync>;

/// The purpose of a request. Credentials may allow reads but not writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Write,
}

/// A store that can be reopened.
pub(crate) struct Renewable<S> {
    used: RwLock<Used<S>>,
    open: Open<S>,
    refused: Mutex<Refused>,
}

#[derive(Clone)]
struct Used<S> {
    store: S,
    /// How often the store was reopened.
    generation: u64,
}

/// When a store that had just been reopened last refused a request, by purpose.
#[derive(Debug, Default)]
struct Refused {
    read: Option<Instant>,
    write: Option<Instant>,
}

impl<S> std::fmt::Debug for Renewable<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewable").finish_non_exhaustive()
    }
}

impl<S: Clone> Renewable<S> {
    pub fn new(store: S, open: Open<S>) -> Self {
        Self { used: RwLock::new(Used { store, generation: 0 }), open, refused: Mutex::default() }
    }

    /// Returns the current store, for requests that are not to be retried with new credentials.
    pub fn store(&self) -> S {
        self.used.read().store.clone()
    }

    /// Makes a request. If the store refuses it, reopens the store and retries the request once.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn ask<T, F>(&self, purpose: Purpose, request: impl Fn(S) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let Used { store, generation } = self.used.read().clone();
        let refusal = match request(store).await {
            Err(error) if is_denied(&error) => error,
            outcome => return outcome,
        };
        // Requests that are refused at the same time wait until the first of them has reopened the store.
        let mut refused = self.refused.lock().await;
        let now = self.used.read().clone();
        if now.generation != generation {
            drop(refused);
            return request(now.store).await;
        }
        if refused.at(purpose).is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(refusal);
        }
        let Some(store) = (self.open)().await else { return Err(refusal) };
        let outcome = request(store.clone()).await;
        if matches!(&outcome, Err(error) if is_denied(error)) {
            *refused.at(purpose) = Some(Instant::now());
        } else {
            tracing::info!("the store refused a request, and accepted it after the credentials were reloaded");
            *self.used.write() = Used { store, generation: generation + 1 };
        }
        outcome
    }
}

impl Refused {
    fn at(&mut self, purpose: Purpose) -> &mut Option<Instant> {
        match purpose {
            Purpose::Read => &mut self.read,
            Purpose::Write => &mut self.write,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    use futures::FutureExt;
    use object_store::{Error, Result};

    use super::{Purpose, Renewable};

    /// Makes a store that is represented by the number of its key; each reopening takes the next number.
    fn opened_with_next_keys() -> (Renewable<u64>, Arc<AtomicU64>) {
        let last = Arc::new(AtomicU64::new(0));
        let next = last.clone();
        let open = Box::new(move || std::future::ready(Some(next.fetch_add(1, SeqCst) + 1)).boxed());
        (Renewable::new(0, open), last)
    }

    /// The answer of a store that accepts keys from `least` on.
    async fn answer(key: u64, least: u64) -> Result<u64> {
        if key >= least {
            return Ok(key);
        }
        Err(Error::PermissionDenied { path: "a".into(), source: format!("key {key} is not known").into() })
    }

    #[tokio::test]
    async fn a_refused_request_is_made_again_with_new_keys_which_all_use_from_then_on() {
        let (store, opened) = opened_with_next_keys();
        assert_eq!(store.ask(Purpose::Read, |key| answer(key, 1)).await.expect("the second key"), 1);
        assert_eq!(store.ask(Purpose::Write, |key| answer(key, 1)).await.expect("the same key"), 1);
        assert_eq!((store.store(), opened.load(SeqCst)), (1, 1));
    }

    #[tokio::test]
    async fn requests_that_are_refused_together_open_the_store_once() {
        let (store, opened) = opened_with_next_keys();
        let at_once = (0..50).map(|_| {
            store.ask(Purpose::Read, async |key| {
                tokio::task::yield_now().await;
                answer(key, 1).await
            })
        });
        let keys = futures::future::join_all(at_once).await;
        assert!(keys.into_iter().all(|key| key.is_ok_and(|key| key == 1)));
        assert_eq!(opened.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn a_refusal_that_new_keys_do_not_change_is_final_for_requests_of_its_purpose() {
        let (store, opened) = opened_with_next_keys();
        for _ in 0..5 {
            store.ask(Purpose::Write, |key| answer(key, u64::MAX)).await.expect_err("no key will do");
        }
        assert_eq!((store.store(), opened.load(SeqCst)), (0, 1), "the first store is kept");
        assert_eq!(store.ask(Purpose::Read, |key| answer(key, 2)).await.expect("the next key"), 2);
    }
}
