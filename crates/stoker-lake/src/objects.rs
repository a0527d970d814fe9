//! Small immutable objects, stored beside the tables.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt, PutPayload};

use stoker_types::ErrorKind;

use crate::lake::LakeInner;
use crate::{Error, Result, WriteAllowance};

/// The folder of the objects, relative to the lake's root.
pub(crate) const FOLDER: &str = "_stoker";

/// Objects under `<lake>/_stoker/`: specifications, row sets, ingest journals.
#[derive(Clone)]
pub struct Objects {
    lake: Arc<LakeInner>,
    allowance: Option<Arc<WriteAllowance>>,
}

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// The object's path, relative to `<lake>/_stoker/`.
    pub path: String,
    /// The object's size in bytes.
    pub bytes: u64,
    /// When the object was last written, by the store's clock.
    pub last_modified: SystemTime,
}

impl ObjectEntry {
    /// Returns whether the object is older than `age`. An object whose time lies in this machine's future is not.
    pub fn is_older_than(&self, age: Duration) -> bool {
        self.last_modified.elapsed().is_ok_and(|there| there > age)
    }
}

/// The outcome of a conditional create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was created.
    Created,
    /// An object of that name existed and was not changed.
    Exists,
}

impl Objects {
    pub(crate) fn new(lake: Arc<LakeInner>, allowance: Option<Arc<WriteAllowance>>) -> Self {
        Self { lake, allowance }
    }

    /// Creates an object that claims a name: exactly one of several concurrent writers creates it.
    ///
    /// # Errors [`Error::UnsafeStore`]; [`Error::AllowanceSpent`]; storage errors; kind `PermissionDenied` when the
    /// lake cannot be written.
    pub async fn claim(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        self.lake.check_atomic_create().await?;
        self.put_if_absent(path, bytes).await
    }

    /// Creates an object unless it exists. The path must determine the content: where the store does not create objects
    /// atomically, two writers may both write, and it must not matter which of them wins.
    ///
    /// # Errors [`Error::AllowanceSpent`] for an object that does not exist; storage errors; kind `PermissionDenied`
    /// when the lake cannot be written.
    pub async fn put_if_absent(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        let Some(allowance) = &self.allowance else { return self.create(path, bytes).await };
        let expense = match allowance.spend(1, bytes.len() as u64) {
            Ok(expense) => expense,
            // An object that exists already costs no allowance.
            Err(_) if self.entry(path).await?.is_some() => return Ok(PutOutcome::Exists),
            Err(error) => return Err(error),
        };
        let put = self.create(path, bytes).await;
        match &put {
            Ok(PutOutcome::Created) => expense.keep(),
            // The store may have created the object although its answer was lost.
            Err(error) if error.kind() == ErrorKind::Unavailable => expense.keep(),
            Ok(PutOutcome::Exists) | Err(_) => {}
        }
        put
    }

    async fn create(&self, path: &str, bytes: Bytes) -> Result<PutOutcome> {
        match self.lake.store.put_if_absent(&self.path(path), PutPayload::from(bytes)).await {
            Ok(()) => Ok(PutOutcome::Created),
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                Ok(PutOutcome::Exists)
            }
            Err(source) => Err(self.error("writing", path, source)),
        }
    }

    /// Creates or replaces an object. The write is not charged to the allowance.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<()> {
        let put = self.lake.store.inner.put(&self.path(path), PutPayload::from(bytes)).await;
        put.map(|_| ()).map_err(|source| self.error("writing", path, source))
    }

    /// Returns the bytes of an object, or `None` when it does not exist.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(self.get_with_entry(path).await?.map(|(bytes, _)| bytes))
    }

    /// Returns the bytes of an object, its size and its time, or `None` when it does not exist. One GET request.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn get_with_entry(&self, path: &str) -> Result<Option<(Bytes, ObjectEntry)>> {
        let got = async {
            let got = self.lake.store.inner.get(&self.path(path)).await?;
            let (bytes, last_modified) = (got.meta.size, got.meta.last_modified.into());
            Ok((got.bytes().await?, ObjectEntry { path: path.to_string(), bytes, last_modified }))
        };
        match got.await {
            Ok(found) => Ok(Some(found)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.error("reading", path, source)),
        }
    }

    /// Returns a range of an object's bytes in one request.
    ///
    /// # Errors
    /// Storage errors; `DataCorrupt` when the object is shorter.
    pub async fn get_range(&self, path: &str, range: Range<u64>) -> Result<Bytes> {
        let length = range.end.saturating_sub(range.start);
        if length == 0 {
            return Ok(Bytes::new());
        }
        let bytes = self.lake.store.inner.get_range(&self.path(path), range).await;
        let bytes = bytes.map_err(|source| self.error("reading", path, source))?;
        if bytes.len() as u64 != length {
            let attempted = format!("reading {} of {}", self.path(path), self.lake.place);
            let reason = format!("{length} bytes were expected, {} are there", bytes.len());
            return Err(Error::DataCorrupt { attempted, reason });
        }
        Ok(bytes)
    }

    /// Returns the paths of all objects under a prefix folder, sorted.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn list(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.entries(prefix).await?.into_iter().map(|entry| entry.path).collect())
    }

    /// Returns the size and the time of an object, or `None` when it does not exist. One HEAD request.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn entry(&self, path: &str) -> Result<Option<ObjectEntry>> {
        match self.lake.store.inner.head(&self.path(path)).await {
            Ok(meta) => {
                let last_modified = meta.last_modified.into();
                Ok(Some(ObjectEntry { path: path.to_string(), bytes: meta.size, last_modified }))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(source) => Err(self.error("looking for", path, source)),
        }
    }

    /// Returns all objects under a prefix folder, sorted by path.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn entries(&self, prefix: &str) -> Result<Vec<ObjectEntry>> {
        let root = self.path("");
        let found: Vec<ObjectMeta> = match self.lake.store.inner.list(Some(&self.path(prefix))).try_collect().await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => Vec::new(),
            Err(source) => return Err(self.error("listing", prefix, source)),
        };
        let entry = |meta: &ObjectMeta| {
            let path = meta.location.as_ref().strip_prefix(root.as_ref())?.trim_start_matches('/').to_string();
            Some(ObjectEntry { path, bytes: meta.size, last_modified: meta.last_modified.into() })
        };
        let mut entries: Vec<ObjectEntry> = found.iter().filter_map(entry).collect();
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(entries)
    }

    /// Deletes an object. An object that does not exist is not an error.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn delete(&self, path: &str) -> Result<()> {
        match self.lake.store.inner.delete(&self.path(path)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(self.error("deleting", path, source)),
        }
    }

    fn path(&self, path: &str) -> Path {
        let mut full = self.lake.base.clone().join(FOLDER);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            full = full.join(part);
        }
        full
    }

    fn error(&self, verb: &str, path: &str, source: object_store::Error) -> Error {
        Error::storage(format!("{verb} {FOLDER}/{path} in {}", self.lake.place), source)
    }
}
