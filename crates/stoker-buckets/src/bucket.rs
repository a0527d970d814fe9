//! A bucket, or a web server.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use stoker_lake::{StorageOptions, open_bucket};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::fetch::Fetch;
use crate::fetch_ahead::Ahead;
use crate::requests::{self, Requests};
use crate::store_requests::StoreRequests;
use crate::website::Website;
use crate::{BucketFile, Error, FetchAhead, ListedObject, Result, SourceUri};

/// The most requests for bytes that are in flight.
const REQUESTS_MAX: usize = 64;

/// How long the bytes of a response may take as a whole, and how long none may come, by default: one slow connection does not
/// fail, and one that stands still is replaced soon.
const TIMEOUT: &str = "300s";
const READ_TIMEOUT: &str = "10s";

/// An open bucket or web server; cheap to clone.
#[derive(Clone)]
pub struct Bucket {
    inner: Arc<BucketInner>,
}

struct BucketInner {
    /// The bucket, or the scheme and the host of the web server.
    uri: String,
    is_website: bool,
    requests: Arc<dyn Requests>,
    threads: Handle,
    permits: Arc<Semaphore>,
    ahead: Arc<Ahead>,
}

/// What a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An object.
    File(ListedObject),
    /// The objects below a folder, sorted by key.
    Folder(Vec<(String, ListedObject)>),
}

impl Bucket {
    /// Opens the bucket or the web server of some sources, which have one root. The options are those of lakes' stores. Must
    /// be called in a tokio runtime, which makes the requests.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options that the store refuses; [`Error::Unavailable`] if the region of the bucket is not found.
    pub async fn open(sources: &[SourceUri], options: &StorageOptions) -> Result<Self> {
        let Some(first) = sources.first() else {
            return Err(Error::Invalid { reason: "no source is given".into() });
        };
        if let Some(other) = sources.iter().find(|source| source.root != first.root) {
            let reason = format!(
                "it is in {}, and another source in {}: write them one after the other",
                other.root, first.root
            );
            return Err(Error::Invalid { reason });
        }
        let options = options.clone().with_default("timeout", TIMEOUT).with_default("read_timeout", READ_TIMEOUT);
        let requests: Arc<dyn Requests> = match first.is_website() {
            true => Arc::new(Website::open(sources, &options)?),
            false => Arc::new(StoreRequests(open_bucket(&first.root, &options).await.map_err(opening)?)),
        };
        Ok(Self::new(first.root.clone(), first.is_website(), requests))
    }

    pub(crate) fn new(uri: String, is_website: bool, requests: Arc<dyn Requests>) -> Self {
        let (threads, permits) = (Handle::current(), Arc::new(Semaphore::new(REQUESTS_MAX)));
        Self { inner: Arc::new(BucketInner { uri, is_website, requests, threads, permits, ahead: Arc::default() }) }
    }

    /// The URI of the bucket or web server, without a slash at the end.
    pub fn uri(&self) -> &str {
        &self.inner.uri
    }

    /// Returns the key of an object by its URI; `None` if it is in another bucket.
    pub fn key<'a>(&self, uri: &'a str) -> Option<&'a str> {
        let below = uri.strip_prefix(self.uri())?;
        if below.is_empty() { Some(below) } else { below.strip_prefix('/') }
    }

    /// Looks what a source is. A name that an object and a folder have is the object's.
    ///
    /// # Errors
    /// [`Error::Missing`] if it is neither; errors of the store.
    pub async fn find(&self, source: &SourceUri) -> Result<Found> {
        let requests = self.inner.requests.as_ref();
        let mut denied = None;
        if !source.names_folder {
            match requests::head(requests, &source.key).await {
                Ok(Some(object)) => return Ok(Found::File(object)),
                Ok(None) => {}
                // Who may list a bucket but read none of its objects may be refused what does not exist.
                Err(error @ Error::Denied { .. }) if !self.inner.is_website => denied = Some(error),
                Err(error) => return Err(error),
            }
        }
        if self.inner.is_website {
            return Err(Error::Missing);
        }
        match (requests::list(requests, &source.key).await, denied) {
            (Ok(objects), denied) if objects.is_empty() => Err(denied.unwrap_or(Error::Missing)),
            (Err(_), Some(denied)) => Err(denied),
            (listed, _) => listed.map(Found::Folder),
        }
    }

    /// Opens a file. No request is made.
    pub fn file(&self, key: &str, listed: &ListedObject) -> BucketFile {
        let whole = self.inner.ahead.take(key, || self.begin(key.into(), 0..listed.bytes, listed.clone()));
        BucketFile::new(self.clone(), key, listed.clone(), whole)
    }

    /// Begins to fetch small files that will be opened soon, in this order. Larger files are left out. Dropping the returned
    /// value ends the requests for those that were not opened.
    pub fn fetch_ahead(&self, files: impl IntoIterator<Item = (String, ListedObject)>) -> FetchAhead {
        FetchAhead::begin(self, files)
    }

    /// Begins to read a range of an object.
    pub(crate) fn begin(&self, key: Arc<str>, range: Range<u64>, listed: ListedObject) -> Arc<Fetch> {
        let (requests, permits) = (self.inner.requests.clone(), self.inner.permits.clone());
        Fetch::begin(&self.inner.threads, async move {
            // The semaphore is never closed.
            let _permit = permits.acquire_owned().await.ok();
            requests::read(requests.as_ref(), &key, range, &listed).await
        })
    }

    pub(crate) fn ahead(&self) -> &Arc<Ahead> {
        &self.inner.ahead
    }

    pub(crate) fn threads(&self) -> &Handle {
        &self.inner.threads
    }
}

fn opening(error: stoker_lake::Error) -> Error {
    match error {
        stoker_lake::Error::InvalidUri { reason, .. } => Error::Invalid { reason },
        error => Error::Unavailable { reason: error.to_string() },
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Bucket").field(&self.inner.uri).finish()
    }
}
