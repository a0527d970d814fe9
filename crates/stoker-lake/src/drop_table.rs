//! Removal of whole tables.
//!
//! A table exists as long as it has a manifest. Its files are removed in this order, so that a drop that is killed
//! leaves either a table whose newest version can be read, or none:
//!
//! ```text
//! tags, names of branches, hints ──► older manifests ──► the newest manifest ──► all other files
//! ```
//!
//! Tags and names of branches go first, because a table that is created later under the same name must not have them.

use futures::{StreamExt as _, TryStreamExt as _, stream};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use stoker_store::again;
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::cleanup::version_of;
use crate::holds::Hold;
use crate::{Error, LakeStore, Result};

/// The number of files that are removed at the same time.
const FILES_IN_FLIGHT: usize = 32;

/// How often the files of a table are listed and removed, if others write to the table meanwhile.
const ROUNDS_MAX: u32 = 10;

/// What happens to a table that is dropped while streams keep versions of it from cleanups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldVersions {
    /// The table is not dropped.
    Refuse,
    /// The table is dropped. The streams that still read it fail.
    Drop,
}

impl LakeStore {
    /// Removes a table with all of its versions, tags and indexes. Takes one listing of its files, and one request for
    /// each file. A commit of another process that is under way may create the table again, without its old files.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a table that does not exist; [`Error::InvalidRequest`] for a branch, and if streams hold
    /// versions of the table or of its branches and `held` refuses that; kind `Unavailable` if others write to the table all the time; storage errors. After a
    /// storage error, the call may be repeated.
    pub async fn drop_table(&self, name: &TableName, held: HeldVersions) -> Result<()> {
        if let Some(branch) = name.branch() {
            let attempted = format!("dropping table {name}");
            let reason = format!("it is a branch: write DROP BRANCH {branch} ON {}", name.root());
            return Err(Error::InvalidRequest { attempted, reason });
        }
        // No commit of this process comes in between.
        let _committing = self.inner.committing.lock().await;
        let versions = self.table_path(name).join("_versions");
        let attempted = || format!("dropping table {name} in {}", self.inner.place);
        let entries = self.list(&versions, attempted).await?;
        if !entries.iter().any(|entry| entry.ends_with(".manifest")) {
            // The error names the tables that exist.
            return self.table(name, &SnapshotRef::Latest).await.map(|_| ());
        }
        if held == HeldVersions::Refuse {
            self.check_not_held(name).await?;
        }
        self.remove_all_files(name).await
    }

    /// Removes all files of a table or of a branch.
    pub(crate) async fn remove_all_files(&self, name: &TableName) -> Result<()> {
        for _ in 0..ROUNDS_MAX {
            let files = self.files_of(name).await?;
            if files.is_empty() {
                self.forget_table(name).await;
                return Ok(());
            }
            self.remove_table_files(name, files).await?;
        }
        let attempted = format!("dropping table {name} in {}", self.inner.place);
        let source = "others write to it meanwhile: try again when they are done".into();
        Err(Error::Storage { attempted, kind: ErrorKind::Unavailable, source })
    }

    /// Refuses to drop a table, with its branches, or a branch, of which streams hold versions.
    pub(crate) async fn check_not_held(&self, name: &TableName) -> Result<()> {
        let now = std::time::SystemTime::now();
        let mut holds = self.holds_of(name).await?;
        holds.retain(|hold| !hold.is_over(now) && (name.branch().is_none() || hold.branch.as_deref() == name.branch()));
        holds.sort_unstable_by(|one, other| one.place().cmp(&other.place()));
        let Some(until) = holds.iter().map(Hold::until).max() else { return Ok(()) };
        holds.dedup_by(|one, other| one.place() == other.place());
        let version = |hold: &Hold| match &hold.branch {
            Some(branch) if name.branch().is_none() => format!("{} of branch '{branch}'", hold.version),
            _ => hold.version.to_string(),
        };
        let versions: Vec<String> = holds.iter().map(version).collect();
        Err(Error::InvalidRequest {
            attempted: format!("dropping table {name}"),
            reason: format!(
                "streams read its versions {} and may resume until {until}: wait until then, or drop it with CASCADE, \
                 after which these streams fail",
                versions.join(", ")
            ),
        })
    }

    /// Lists all files of a table.
    async fn files_of(&self, name: &TableName) -> Result<Vec<Path>> {
        let folder = self.table_path(name);
        let list = async || {
            let found = self.inner.store.inner.list(Some(&folder)).map_ok(|meta| meta.location);
            let listed = found.try_collect::<Vec<Path>>().await;
            listed.map_err(|source| Error::storage(format!("listing the files of table {name}"), source))
        };
        match again(list).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            listed => listed,
        }
    }

    /// Removes files of a table, the newest manifest after the other ones and after the tags, and before the data.
    async fn remove_table_files(&self, name: &TableName, files: Vec<Path>) -> Result<()> {
        let folder = self.table_path(name);
        let (versions, tags) = (folder.clone().join("_versions"), folder.join("_refs"));
        let (mut first, mut manifests, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for file in files {
            match version_of(&file).filter(|_| file.prefix_matches(&versions)) {
                Some(version) => manifests.push((version, file)),
                None if file.prefix_matches(&versions) || file.prefix_matches(&tags) => first.push(file),
                None => rest.push(file),
            }
        }
        manifests.sort_unstable_by_key(|(version, _)| *version);
        let newest = manifests.pop().map(|(_, file)| file);
        let older = manifests.into_iter().map(|(_, file)| file).collect();
        for files in [first, older, newest.into_iter().collect(), rest] {
            self.remove_files(name, files).await?;
        }
        Ok(())
    }

    async fn remove_files(&self, name: &TableName, files: Vec<Path>) -> Result<()> {
        let remove = |file: Path| async move {
            match self.inner.store.inner.delete(&file).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(source) => Err(Error::storage(format!("removing {file} of table {name}"), source)),
            }
        };
        stream::iter(files).map(remove).buffer_unordered(FILES_IN_FLIGHT).try_collect().await
    }

    /// Forgets what this process knows of a table that is gone, and removes its empty folders from a local disk.
    async fn forget_table(&self, name: &TableName) {
        self.inner.session.file_metadata_cache().clear().await;
        self.inner.holds.forget(name);
        if let Err(error) = self.clean_measured(name).await {
            tracing::debug!(%error, "what was measured of the indexes of table {name} stays");
        }
        if self.is_local()
            && let Err(error) = self.inner.store.remove_dir_all(self.table_path(name)).await
        {
            tracing::debug!(%error, "the empty folder of table {name} stays");
        }
    }
}
