//! Row sets in the lake.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{Objects, PutOutcome};
use stoker_types::{Digest, ErrorKind};

use super::object::{frame, unframe};
use crate::{Error, Result};

/// Requests at a time when objects are looked for.
const NUM_PROBES: usize = 16;

/// Objects that are older are written again where they are needed anew: cleanups spare those of a day.
const YOUNG: Duration = Duration::from_secs(12 * 3600);

/// The objects of row sets.
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

    /// Stores content at a path that is derived from it; what is there already, intact and young stays. What is older is written
    /// again, so that no cleanup takes it for unused before it is named.
    pub(super) async fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        let framed = frame(content);
        if self.objects.put_if_absent(path, framed.clone()).await? == PutOutcome::Exists {
            let stays = match self.objects.get(path).await? {
                Some(existing) if unframe(&existing).is_ok() => {
                    self.objects.entry(path).await?.is_some_and(|entry| !entry.is_older_than(YOUNG))
                }
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

    /// The framed object at a path.
    pub(super) async fn get(&self, path: &str) -> Result<Option<Bytes>> {
        Ok(self.objects.get(path).await?)
    }

    /// Whether objects are at all these paths. Their content is checked when it is read.
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

    /// The content at a path; `None` if nothing is there.
    ///
    /// # Errors
    /// `DataCorrupt` when the object is damaged.
    pub(super) async fn content(&self, path: &str) -> Result<Option<Bytes>> {
        let Some(framed) = self.get(path).await? else { return Ok(None) };
        let corrupt = |reason| Error::RowSetCorrupt { path: path.to_string(), reason };
        unframe(&framed).map(Some).map_err(corrupt)
    }
}
