//! Object stores whose requests pass a circuit breaker.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use lance_io::object_store::WrappingObjectStore;
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions, Result,
};

use crate::breaker::{Breaker, Out};
use crate::error::is_transient;

/// What errors of requests that were not made name as their store.
const STORE: &str = "stoker";

/// Folders of a table whose files are read because a version names them.
const NAMED_FOLDERS: [&str; 3] = ["data", "_deletions", "_indices"];

/// The wait before a file that was not there is asked for again.
const MISSING_WAIT: Duration = Duration::from_millis(100);

/// Puts a breaker before the requests of Lance and of this crate.
#[derive(Debug)]
pub(crate) struct BreakerWrapper {
    breaker: Arc<Breaker>,
}

impl BreakerWrapper {
    pub fn new(breaker: Arc<Breaker>) -> Self {
        Self { breaker }
    }
}

impl WrappingObjectStore for BreakerWrapper {
    fn wrap(&self, _store_prefix: &str, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        Arc::new(BreakerStore { inner, breaker: self.breaker.clone() })
    }

    fn wrap_paginated(
        &self,
        _store_prefix: &str,
        inner: Arc<dyn PaginatedListStore>,
    ) -> Option<Arc<dyn PaginatedListStore>> {
        Some(Arc::new(BreakerLister { inner, breaker: self.breaker.clone() }))
    }
}

/// Makes a request as soon as it may begin, and notes how it ended.
///
/// # Errors
/// Those of the request; a transient one where it may not begin soon.
pub(crate) async fn through<T>(breaker: &Breaker, request: impl Future<Output = Result<T>>) -> Result<T> {
    let pass = breaker.enter().await.map_err(out)?;
    let outcome = request.await;
    match &outcome {
        Err(error) if is_transient(error) => pass.failed(),
        _ => pass.answered(),
    }
    outcome
}

/// As [`through`], and once more for a file that a version names and that is not there: stores are wrong about that now and then.
///
/// # Errors
/// As [`through`].
pub(crate) async fn through_twice<T, F>(breaker: &Breaker, path: &Path, get: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    match through(breaker, get()).await {
        Err(Error::NotFound { .. }) if path.parts().any(|part| NAMED_FOLDERS.contains(&part.as_ref())) => {
            tokio::time::sleep(MISSING_WAIT).await;
            through(breaker, get()).await
        }
        outcome => outcome,
    }
}

fn out(out: Out) -> Error {
    Error::Generic { store: STORE, source: Box::new(out) }
}

/// Whether a request was not made, as the store answers none.
pub(crate) fn was_held_back(error: &Error) -> bool {
    matches!(error, Error::Generic { store: STORE, .. })
}

#[derive(Debug)]
struct BreakerStore {
    inner: Arc<dyn ObjectStore>,
    breaker: Arc<Breaker>,
}

impl BreakerStore {
    /// Holds a listing back; its first page tells how it ended.
    fn listed(&self, listing: BoxStream<'static, Result<ObjectMeta>>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (breaker, mut listing) = (self.breaker.clone(), listing.fuse());
        let opened = async move {
            let first = through(&breaker, async { listing.next().await.transpose() }).await;
            stream::iter(first.transpose()).chain(listing)
        };
        stream::once(opened).flatten().boxed()
    }
}

impl fmt::Display for BreakerStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait::async_trait]
impl ObjectStore for BreakerStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        through(&self.breaker, self.inner.put_opts(location, payload, options)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        through(&self.breaker, self.inner.put_multipart_opts(location, options)).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        through_twice(&self.breaker, location, || self.inner.get_opts(location, options.clone())).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        through_twice(&self.breaker, location, || self.inner.get_ranges(location, ranges)).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.inner.list(prefix))
    }

    fn list_with_offset(&self, prefix: Option<&Path>, offset: &Path) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listed(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        through(&self.breaker, self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        through(&self.breaker, self.inner.copy_opts(from, to, options)).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        through(&self.breaker, self.inner.rename_opts(from, to, options)).await
    }
}

struct BreakerLister {
    inner: Arc<dyn PaginatedListStore>,
    breaker: Arc<Breaker>,
}

#[async_trait::async_trait]
impl PaginatedListStore for BreakerLister {
    async fn list_paginated(&self, prefix: Option<&str>, options: PaginatedListOptions) -> Result<PaginatedListResult> {
        through(&self.breaker, self.inner.list_paginated(prefix, options)).await
    }
}
