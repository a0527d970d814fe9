//! Versions and tags.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stoker_types::TagName;

use crate::again::again;
use crate::caught::caught;
use crate::{Error, Result, Table};

/// A version of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// The version number.
    pub version: u64,
    /// When it was committed, in milliseconds since 1970 UTC.
    pub timestamp_millis: i64,
    /// Tags that point to it.
    pub tags: Vec<String>,
}

impl Table {
    /// All versions that still exist, oldest first.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn versions(&self) -> Result<Vec<VersionInfo>> {
        let list = async || caught(self.dataset().versions()).await.map_err(|source| self.listing_failed(source));
        let versions = again(list).await?;
        let tags = self.tags().await?;
        let info = |version: lance::dataset::Version| VersionInfo {
            version: version.version,
            timestamp_millis: version.timestamp.timestamp_millis(),
            tags: tags.iter().filter(|(_, of)| **of == version.version).map(|(tag, _)| tag.clone()).collect(),
        };
        Ok(versions.into_iter().map(info).collect())
    }

    /// Whether an older version does not exist any more.
    pub(crate) async fn is_gone(&self, version: u64) -> Result<bool> {
        Ok(version > 0 && version < self.version() && !self.version_numbers().await?.contains(&version))
    }

    /// The numbers of all versions that still exist, in any order.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn version_numbers(&self) -> Result<Vec<u64>> {
        let list = async || self.dataset().version_refs().await.map_err(|source| self.listing_failed(source));
        Ok(again(list).await?.iter().map(|found| found.version).collect())
    }

    fn listing_failed(&self, source: lance_core::Error) -> Error {
        Error::storage(format!("listing the versions of table {}", self.name()), source)
    }

    /// All tags and the versions that they name.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn tags(&self) -> Result<BTreeMap<String, u64>> {
        let list = async || {
            let tags = self.dataset().tags().list().await;
            tags.map_err(|source| Error::storage(format!("listing the tags of table {}", self.name()), source))
        };
        let tags = again(list).await?;
        Ok(tags.into_iter().map(|(tag, contents)| (tag, contents.version)).collect())
    }

    /// Gives this version a tag, which protects it from cleanup.
    ///
    /// # Errors
    /// An invalid or existing tag; storage errors.
    pub async fn create_tag(&self, tag: &TagName) -> Result<()> {
        if let Some(version) = self.tags().await?.get(tag.as_str()) {
            let (table, tag) = (self.name().to_string(), tag.to_string());
            return Err(Error::TagExists { table, tag, version: *version });
        }
        let created = self.dataset().tags().create(tag.as_str(), self.version()).await;
        created.map_err(|source| Error::storage(format!("tagging {} as '{tag}'", self.snapshot()), source))
    }

    /// Removes a tag.
    ///
    /// # Errors
    /// [`Error::NotFound`] without such a tag; storage errors.
    pub async fn delete_tag(&self, tag: &TagName) -> Result<()> {
        let deleted = self.dataset().tags().delete(tag.as_str()).await;
        deleted.map_err(|source| Error::storage(format!("removing tag '{tag}' of table {}", self.name()), source))
    }
}
