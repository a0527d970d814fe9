//! Versions and tags; an older version becomes the newest one again.

use std::collections::BTreeMap;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use lance::dataset::refs::{TagContents, base_tags_path, tag_path};
use lance_table::transaction::Operation;
use stoker_store::again;
use stoker_types::{ErrorKind, MAIN_BRANCH, SnapshotRef, TableName, TagName, VersionInfo};

use crate::commit::pause;
use crate::damage::caught;
use crate::exact_commit::{ExactChange, IndifferentTo, LostFiles};
use crate::holds::Hold;
use crate::{ChangeNote, Error, LakeStore, Result, Table};

/// The number of tags that are read at the same time.
const TAGS_AT_ONCE: usize = 10;

/// The most attempts to restore a version while others commit.
const RESTORE_ATTEMPTS_MAX: u32 = 50;

/// The version that a tag names.
pub(crate) struct Tagged {
    /// The branch of the version; `None` for the main branch.
    pub branch: Option<String>,
    pub version: u64,
}

impl LakeStore {
    /// Makes a new version with the rows, the columns and the indexes of an older one. The versions between them stay, and
    /// so do tags. Returns the new version.
    ///
    /// What others commit while the call runs is in the versions before the new one, as if they had committed before the
    /// call.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a version that does not exist; [`Error::InvalidRequest`] for the newest version;
    /// [`Error::UnsafeStore`]; [`Error::Conflict`] if others commit before each of 50 attempts, or if the table was dropped
    /// and created again; storage errors.
    pub async fn restore(&self, name: &TableName, version: u64, note: &ChangeNote) -> Result<u64> {
        // The error names the versions that exist.
        let older = self.table(name, &SnapshotRef::Version(version)).await?;
        let begun = self.table(name, &SnapshotRef::Latest).await?;
        if begun.version() == version {
            let attempted = format!("restoring version {version} of table {name}");
            return Err(Error::InvalidRequest { attempted, reason: "it is the newest version".into() });
        }
        let mut attempts_left = RESTORE_ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let newest = self.table(name, &SnapshotRef::Latest).await?;
            // A table that was dropped and created again has other files under the same number.
            if newest.version() < begun.version() {
                let what = "the table was dropped and created again".to_string();
                return Err(Error::Conflict { table: name.to_string(), version: newest.version(), what });
            }
            let change = ExactChange {
                base: &newest,
                operation: Operation::Restore { version: older.version() },
                indifferent_to: IndifferentTo::Nothing,
                files: Vec::new(),
                lost_files: LostFiles::Remove,
                key: None,
                properties: note.properties.clone(),
            };
            match self.commit_exactly(change).await {
                Ok(committed) => return Ok(committed.version),
                Err(Error::Conflict { .. }) if attempts_left > 0 => {
                    tokio::time::sleep(pause(RESTORE_ATTEMPTS_MAX - attempts_left)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl Table {
    /// Returns all versions that still exist, oldest first.
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

    /// Returns whether an older version was removed.
    pub(crate) async fn is_gone(&self, version: u64) -> Result<bool> {
        Ok(version > 0 && version < self.version() && !self.version_numbers().await?.contains(&version))
    }

    /// Returns the numbers of all versions that still exist, in any order.
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

    /// Returns all tags with the versions of this branch that they name, except those by which streams keep versions from
    /// cleanup.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn tags(&self) -> Result<BTreeMap<String, u64>> {
        let mut tags = self.tags_of_branches().await?;
        tags.retain(|_, tagged| tagged.branch.as_deref() == self.name().branch());
        Ok(tags.into_iter().map(|(tag, tagged)| (tag, tagged.version)).collect())
    }

    /// Returns the tags of all branches of the table, except those by which streams keep versions from cleanup.
    pub(crate) async fn tags_of_branches(&self) -> Result<BTreeMap<String, Tagged>> {
        let base = self.lake().root_path(self.name());
        let attempted = || format!("listing the tags of table {}", self.name());
        let names = self.lake().list(&base_tags_path(&base), attempted).await?;
        let names: Vec<String> = names
            .iter()
            .filter_map(|name| name.strip_suffix(".json"))
            .filter(|tag| Hold::of(tag).is_none())
            .map(str::to_string)
            .collect();
        let read = stream::iter(names).map(|name| async {
            match again(async || self.tagged(&name).await).await {
                Ok(tagged) => Ok(Some((name, tagged))),
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        });
        read.buffer_unordered(TAGS_AT_ONCE).try_filter_map(|found| std::future::ready(Ok(found))).try_collect().await
    }

    /// Returns the version that a tag names.
    async fn tagged(&self, tag: &str) -> Result<Tagged> {
        let path = tag_path(&self.lake().root_path(self.name()), tag);
        let contents = TagContents::from_path(&path, &self.lake().inner.store).await;
        let attempted = || format!("reading tag '{tag}' of table {}", self.name());
        let contents = contents.map_err(|source| Error::storage(attempted(), source))?;
        Ok(Tagged { branch: contents.branch, version: contents.version })
    }

    /// Creates a tag that names this version, which protects the version from cleanup.
    ///
    /// # Errors
    /// An invalid or existing tag; storage errors.
    pub async fn create_tag(&self, tag: &TagName) -> Result<()> {
        if let Some(tagged) = self.tags_of_branches().await?.remove(tag.as_str()) {
            let branch = tagged.branch.as_deref().unwrap_or(MAIN_BRANCH);
            let table = self.name().with_branch(branch).map_or_else(|_| self.name().to_string(), |of| of.to_string());
            return Err(Error::TagExists { table, tag: tag.to_string(), version: tagged.version });
        }
        let attempted = || format!("tagging {} as '{tag}'", self.snapshot());
        let created = self.dataset().tags().create(tag.as_str(), self.version()).await;
        created.map_err(|source| Error::storage(attempted(), source))?;
        if !self.lake().has_branch(self.name()).await? {
            self.delete_tag(tag).await?;
            return Err(self.lake().dropped(self.name()));
        }
        Ok(())
    }

    /// Removes a tag.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such tag; storage errors.
    pub async fn delete_tag(&self, tag: &TagName) -> Result<()> {
        let deleted = self.dataset().tags().delete(tag.as_str()).await;
        deleted.map_err(|source| Error::storage(format!("removing tag '{tag}' of table {}", self.name()), source))
    }
}
