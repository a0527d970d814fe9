//! Object stores whose requests pass a circuit breaker. A request that the store refuses is retried once with new
//! credentials.

use std::fmt;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{Either, select};
use futures::stream::{self, BoxStream};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::breaker::{Breaker, Out, Pass};
use crate::renewable::{Open, Purpose, Renewable};

/// The store name in errors of the breaker; [`is_outage`] recognises them by it.
const STORE: &str = "stoker";

/// The folders of a table whose files are read only because a version names them.
const NAMED_FOLDERS: [&str; 3] = ["data", "_deletions", "_indices"];

/// The wait before a request for a missing file is made a second time.
const MISSING_WAIT: Duration = Duration::from_millis(100);

/// Makes a request as soon as the breaker lets it begin, and reports its outcome to the breaker.
///
/// # Errors
/// Those of the request; a transient error when the breaker does not let it begin within five seconds.
pub(crate) async fn through<T>(breaker: &Breaker, request: impl Future<Output = Result<T>>) -> Result<T> {
    let pass = breaker.enter().await?;
    noted(pass, request.await)
}

/// Reports the outcome of a request to the breaker. A transient error during an outage is wrapped in an error that
/// says so.
fn noted<T>(pass: Pass<'_>, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error) if pass.is_failure(&error) => Err(match pass.failed() {
            Some(outage) => outage.after(error).into(),
            None => error,
        }),
        outcome => {
            pass.answered();
            outcome
        }
    }
}

/// Like [`through`], for a read-only request. A request that is in flight when an outage ends is cancelled and made
/// again, once, because the store may never answer it.
///
/// # Errors
/// As [`through`].
pub(crate) async fn through_anew<T, F>(breaker: &Breaker, request: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let pass = breaker.enter().await?;
    let first = match select(pin!(request()), pin!(breaker.until_back())).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(((), _)) => None,
    };
    match first {
        Some(outcome) => noted(pass, outcome),
        None => {
            drop(pass);
            through(breaker, request()).await
        }
    }
}

/// Like [`through_anew`], for a read of an object. When an object is missing that a version names, the request is
/// made once more after 100 ms, because stores sometimes report an existing object as missing.
///
/// # Errors
/// As [`through`].
pub(crate) async fn through_twice<T, F>(breaker: &Breaker, path: &Path, get: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    match through_anew(breaker, &get).await {
        Err(Error::NotFound { .. }) if path.parts().any(|part| NAMED_FOLDERS.contains(&part.as_ref())) => {
            tokio::time::sleep(MISSING_WAIT).await;
            through_anew(breaker, get).await
        }
        outcome => outcome,
    }
}

impl From<Out> for Error {
    fn from(out: Out) -> Self {
        Error::Generic { store: STORE, source: Box::new(out) }
    }
}

/// Whether a request failed, or was not made, because of an outage of the store.
pub fn is_outage(error: &Error) -> bool {
    matches!(error, Error::Generic { store: STORE, .. })
}

/// A store behind a breaker.
#[derive(Debug)]
pub struct BreakerStore {
    inner: Arc<Renewable<Arc<dyn ObjectStore>>>,
    breaker: Arc<Breaker>,
}

impl BreakerStore {
    /// Puts the breaker in front of a store. `reopen` opens the store again, with the current credentials.
    pub fn new(inner: Arc<dyn ObjectStore>, reopen: Open<Arc<dyn ObjectStore>>, breaker: Arc<Breaker>) -> Self {
        Self { inner: Arc::new(Renewable::new(inner, reopen)), breaker }
    }

    /// Begins a listing as a read-only request. The arrival of the first entry counts as the response; errors after
    /// it are not reported to the breaker.
    fn listed(
        &self,
        list: impl Fn(Arc<dyn ObjectStore>) -> BoxStream<'static, Result<ObjectMeta>> + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let (breaker, inner) = (self.breaker.clone(), self.inner.clone());
        let opened = async move {
            let begin = || {
                inner.ask(Purpose::Read, |store| {
                    let mut listing = breaker.stream_at_home(list(store)).fuse();
                    async move { Ok((listing.next().await.transpose()?, listing)) }
                })
            };
            match through_anew(&breaker, begin).await {
                Ok((first, rest)) => stream::iter(first.map(Ok)).chain(rest).boxed(),
                Err(error) => stream::once(std::future::ready(Err(error))).boxed(),
            }
        };
        stream::once(opened).flatten().boxed()
    }

    /// Makes a read-only request.
    async fn read<T, F>(&self, request: impl Fn(Arc<dyn ObjectStore>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        through_anew(&self.breaker, || self.ask(Purpose::Read, &request)).await
    }

    /// Makes a request that writes. It is not repeated when an outage ends.
    async fn write<T, F>(&self, request: impl Fn(Arc<dyn ObjectStore>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        through(&self.breaker, self.ask(Purpose::Write, request)).await
    }

    /// Makes a request on the runtime for requests. When the store refuses its credentials, the store is opened again
    /// and the request made once more.
    async fn ask<T, F>(&self, purpose: Purpose, request: impl Fn(Arc<dyn ObjectStore>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        self.inner.ask(purpose, |store| self.breaker.at_home(request(store))).await
    }
}

impl fmt::Display for BreakerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.store().fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for BreakerStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.write(|store| {
            let (path, payload, options) = (location.clone(), payload.clone(), options.clone());
            async move { store.put_opts(&path, payload, options).await }
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.write(|store| {
            let (path, options) = (location.clone(), options.clone());
            async move { store.put_multipart_opts(&path, options).await }
        })
        .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let get = || {
            self.ask(Purpose::Read, |store| {
                let (path, options) = (location.clone(), options.clone());
                async move { store.get_opts(&path, options).await }
            })
        };
        through_twice(&self.breaker, location, get).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let get = || {
            self.ask(Purpose::Read, |store| {
                let (path, ranges) = (location.clone(), ranges.to_vec());
                async move { store.get_ranges(&path, &ranges).await }
            })
        };
        through_twice(&self.breaker, location, get).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.store().delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.cloned();
        self.listed(move |store| store.list(prefix.as_ref()))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        let (prefix, offset) = (prefix.cloned(), offset.clone());
        self.listed(move |store| store.list_with_offset(prefix.as_ref(), &offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.read(|store| {
            let prefix = prefix.cloned();
            async move { store.list_with_delimiter(prefix.as_ref()).await }
        })
        .await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.write(|store| {
            let (from, to, options) = (from.clone(), to.clone(), options.clone());
            async move { store.copy_opts(&from, &to, options).await }
        })
        .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.write(|store| {
            let (from, to, options) = (from.clone(), to.clone(), options.clone());
            async move { store.rename_opts(&from, &to, options).await }
        })
        .await
    }
}

/// The part of a store that lists page by page, behind a breaker.
#[derive(Debug)]
pub struct BreakerLister {
    inner: Renewable<Arc<dyn PaginatedListStore>>,
    breaker: Arc<Breaker>,
}

impl BreakerLister {
    /// Puts the breaker in front of a store. `reopen` opens the store again, with the current credentials.
    pub fn new(
        inner: Arc<dyn PaginatedListStore>,
        reopen: Open<Arc<dyn PaginatedListStore>>,
        breaker: Arc<Breaker>,
    ) -> Self {
        Self { inner: Renewable::new(inner, reopen), breaker }
    }
}

#[async_trait::async_trait]
impl PaginatedListStore for BreakerLister {
    async fn list_paginated(&self, prefix: Option<&str>, options: PaginatedListOptions) -> Result<PaginatedListResult> {
        let list = |lister: Arc<dyn PaginatedListStore>| {
            let (prefix, options) = (prefix.map(str::to_string), options.clone());
            self.breaker.at_home(async move { lister.list_paginated(prefix.as_deref(), options).await })
        };
        through_anew(&self.breaker, || self.inner.ask(Purpose::Read, list)).await
    }
}

#[cfg(test)]
mod tests;
