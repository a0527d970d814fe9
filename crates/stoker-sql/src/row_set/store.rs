//! Stores the objects of row sets in the lake. The content of each is framed with a magic number and a checksum.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::join;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use stoker_lake::{Objects, PutOutcome};
use stoker_types::{Digest, ErrorKind};

use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"STKRROWS";
const DIGEST_BYTES: usize = 32;

/// The most requests at the same time that check whether objects exist.
const NUM_PROBES: usize = 16;

/// The age from which an object is written again when it is stored again. Cleanups keep objects that are younger than a
/// day.
const YOUNG: Duration = Duration::from_secs(12 * 3600);

/// The size up to which an object is requested while it is stored.
const SMALL_BYTES: usize = 64 << 10;

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
    /// is. An older object is written again, so that no cleanup deletes it before a specification refers to it.
    ///
    /// This takes one round trip, and two for an object that is written again or is larger than [`SMALL_BYTES`]: a small
    /// one is requested while it is stored, because most rows are streamed more than once.
    pub(super) async fn put(&self, path: &str, content: &[u8]) -> Result<()> {
        let framed = frame(content);
        let put = self.objects.put_if_absent(path, framed.clone());
        let (put, found) = match framed.len() <= SMALL_BYTES {
            true => join(put, self.objects.get_with_entry(path)).await,
            false => (put.await, Ok(None)),
        };
        if put? == PutOutcome::Created {
            return Ok(());
        }
        let found = match found? {
            Some(found) => Some(found),
            None => self.objects.get_with_entry(path).await?,
        };
        let stays = match found {
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

/// Returns the magic number, the SHA-256 digest of the content, and the content, as one buffer.
pub(super) fn frame(content: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(MAGIC.len() + DIGEST_BYTES + content.len());
    framed.put_slice(MAGIC);
    framed.put_slice(Digest::of(content).as_bytes());
    framed.put_slice(content);
    framed.freeze()
}

/// Returns the content of a framed object, or what is wrong with the object.
pub(super) fn unframe(framed: &Bytes) -> Result<Bytes, String> {
    let start = MAGIC.len() + DIGEST_BYTES;
    if framed.len() < start || &framed[..MAGIC.len()] != MAGIC {
        return Err("it does not begin like a row set object".to_string());
    }
    let content = framed.slice(start..);
    match &framed[MAGIC.len()..start] == Digest::of(&content).as_bytes() {
        true => Ok(content),
        false => Err("its checksum does not match: it is truncated or changed".to_string()),
    }
}
