//! What a listing says of an object.

use std::sync::Arc;

use object_store::ObjectMeta;

use crate::{Error, Result};

/// An object when it was listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObject {
    /// The size in bytes.
    pub bytes: u64,
    /// The ETag without its quotes, or else what the store says that changes with the object; empty if it says nothing.
    pub version: Arc<str>,
    /// The time of the last change, in nanoseconds since 1970; 0 if the store does not tell.
    pub modified_nanos: u64,
}

impl ListedObject {
    pub(crate) fn of(meta: &ObjectMeta) -> Self {
        let modified = meta.last_modified.timestamp_nanos_opt().and_then(|nanos| u64::try_from(nanos).ok());
        let version = meta.e_tag.as_deref().map(plain_etag).unwrap_or_default().into();
        Self { bytes: meta.size, version, modified_nanos: modified.unwrap_or(0) }
    }

    /// Checks that an object still is the listed one.
    ///
    /// # Errors
    /// [`Error::Changed`], which says what differs.
    pub(crate) fn check(&self, now: &Self) -> Result<()> {
        if self.bytes != now.bytes {
            let change = format!("it had {} bytes when it was listed and has {} now", self.bytes, now.bytes);
            return Err(Error::Changed { change });
        }
        let is_same = match self.version.is_empty() || now.version.is_empty() {
            true => seconds(self.modified_nanos) == seconds(now.modified_nanos),
            false => self.version == now.version,
        };
        match is_same {
            true => Ok(()),
            false => Err(Error::Changed { change: "it was written again after it had been listed".into() }),
        }
    }
}

/// Returns an ETag without its quotes, which listings of some stores leave out, and without the mark of weak ones.
pub(crate) fn plain_etag(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag).trim_matches('"')
}

/// Headers of responses have whole seconds, listings have milliseconds.
fn seconds(nanos: u64) -> u64 {
    nanos / 1_000_000_000
}
