//! Stores the objects of row sets in the lake.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{Objects, PutOutcome};
use stoker_types::{Digest, ErrorKind};

use super::object::{frame, unframe};
use crate::{Error, Result};

/// The most requests at the same time that check whether objects exist.
const NUM_PROBES: usize = 16;

/// The age from which an object is written again when it is stored again. Cleanups keep objects that are younger than a
/// day.
const YOUNG: Duration = Duration::from_secs(12 * 3600);

/// Reads and writes the objects of row sets.
#[derive(Clone)]
pub(super) struct Store {
    objects: Objects,
}

pub(super) fn header_path(digest: Digest) -> String {
    format!("rowsets/{digest}")
}

pub(super) fn page_path(digest: Digest) -> String {
    format!("rowsets/pages/{digest}")
}

impl Store {
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects }
    }

    /// Stores content at a path that is derived from the content. An intact object younger than [`YOUNG`] stays as it
    /// is. An older object is written again, so that no cleanup deletes it before a specification refers to it. This
    /// costs one request for a new object, two for one that stays, and three for one that is written again.
    pub(super) async fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        let framed = frame(content);
        if self.objects.put_if_absent(path, framed.clone()).await? == PutOutcome::Exists {
            let stays = match self.objects.get_with_entry(path).await? {
                Some((existing, entry)) if unframe(&existing).is_ok() => !entry.is_older_than(YOUNG),
                Some(_) => {
                    tracing::warn!(path, "replacing a damaged row set object");
                    false
                }
                None => false,
            };
            if !stays {
                self.objects.put(path, framed).await?;
            }
        }
        Ok(())
    }

    /// Returns the framed object at a path, or `None`.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(self.objects.get(path).await?)
    }

    /// Tells whether objects exist at all these paths. This costs one request of one byte per path; the content is
    /// checked when it is read.
    pub(super) async fn all_exist(&self, paths: Vec<String>) -> Result<bool> {
        let probes = paths.into_iter().map(|path| async move {
            match self.objects.get_range(&path, 0..1).await {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(Error::from(error)),
            }
        });
        stream::iter(probes).buffer_unordered(NUM_PROBES).try_all(|exists| async move { exists }).await
    }

    /// Returns the content at a path, or `None` if there is no object.
    ///
    /// # Errors
    /// `DataCorrupt` when the object is damaged.
    pub(super) async fn content(&self, path: &str) -> Result<Option<Bytes>> {
        let Some(framed) = self.get(path).await? else { return Ok(None) };
        let corrupt = |reason| Error::RowSetCorrupt { path: path.to_string(), reason };
        unframe(&framed).map(Some).map_err(corrupt)
    }
}
