//! Commits that take effect at one version or not at all.
//!
//! A change of rows or columns is computed on one version of a table. It is committed as the next version, or, if the
//! commits that came in between do not matter to it, as the version after them.

use std::collections::HashMap;
use std::sync::Arc;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::Dataset;
use lance::dataset::{CommitBuilder, WriteDestination};
use lance_io::object_store::ObjectStore;
use lance_table::format::{Fragment, IndexMetadata, Manifest, Transaction as StoredTransaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter, commit_handler_from_url,
};
use lance_table::transaction::{Operation, Transaction, TransactionBuilder};
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use stoker_store::first_line;
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::commit::{ATTEMPTS_MAX, CommitKey, KEY_PROPERTY, Search, is_conflict, pause, search, transaction};
use crate::lineage::{PARENT_PROPERTY, Traces};
use crate::{Error, LakeStore, Result, Table};

/// The number of files that are removed or looked for at the same time.
const FILES_IN_FLIGHT: usize = 16;

/// The number of times that a commit with a key is repeated after a request that failed or timed out.
const FAULTS_MAX: u32 = 3;

/// What others did to a table of which the newest version does not descend from the one that was read.
const CREATED_AGAIN: &str = "the table was dropped and created again";

/// A change that was computed on one version of a table.
pub(crate) struct ExactChange<'a> {
    /// The version on which the change was computed.
    pub base: &'a Table,
    /// The change.
    pub operation: Operation,
    /// The commits of others that do not matter to the change.
    pub indifferent_to: IndifferentTo,
    /// The names of the data files that were written for the change.
    pub files: Vec<String>,
    /// What happens to these files if no version names them after all.
    pub lost_files: LostFiles,
    /// The key under which the change takes effect once.
    pub key: Option<CommitKey<'a>>,
    /// What the transaction says beside the change.
    pub properties: HashMap<String, String>,
}

/// The commits of others, after the version on which a change was computed, that do not matter to the change. Commits
/// that leave rows and columns as they are, such as those of indexes, matter to no change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndifferentTo {
    /// Commits that leave the columns as they are.
    Rows,
    /// Commits that only add rows.
    NewRows,
    /// No commits of rows or columns.
    Nothing,
}

/// What happens to the data files of a change that is in no version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LostFiles {
    /// They are removed, as far as the store allows.
    #[default]
    Remove,
    /// They stay, because a journal names them: the next attempt, or another process, commits them. A cleanup removes
    /// those that are left over.
    Keep,
}

/// A change that was committed.
#[derive(Debug)]
pub(crate) struct CommittedChange {
    /// The version that has the change.
    pub version: u64,
    /// What the transaction of this version says beside the change.
    pub properties: HashMap<String, String>,
}

impl LakeStore {
    /// Commits a change, once. The files of a change that is in no version are removed as far as the store allows, unless a
    /// journal names them; its deletion files stay until the next cleanup, because another writer may have the same ones.
    ///
    /// # Errors
    /// [`Error::Conflict`] if other commits came in between that matter to the change, [`Error::Overtaken`] as
    /// [`CommitKey::chosen_at`] says, storage errors: the table does not have the change. [`Error::OutcomeUnknown`]
    /// when nothing tells whether it has: when a request to commit it failed or timed out, with a key several times.
    pub(crate) async fn commit_exactly(&self, change: ExactChange<'_>) -> Result<CommittedChange> {
        let mut may_be_stored = false;
        let attempted = change.attempted();
        let committed = self.try_commit_exactly(&change, &mut may_be_stored).await;
        if !may_be_stored && change.lost_files == LostFiles::Remove {
            self.remove_data_files(change.base.name(), change.files).await;
        }
        match committed {
            // A request that failed or timed out may still take effect.
            Err(Error::Storage { kind: ErrorKind::Unavailable, source, .. }) if may_be_stored => {
                Err(Error::OutcomeUnknown { attempted, reason: first_line(&source) })
            }
            committed => committed,
        }
    }

    /// Finds the earlier commit of a key, or checks that a change which was computed on `base` can be committed now.
    pub(crate) async fn check_change(
        &self,
        base: &Table,
        indifferent_to: IndifferentTo,
        key: Option<CommitKey<'_>>,
    ) -> Result<Option<CommittedChange>> {
        let since = key.map_or(0, |key| key.since_version);
        let newest = self.newest_of(base.name()).await?;
        let earlier = earlier(&newest, key, since).await?;
        if earlier.is_none() {
            self.check_unchanged(base, &newest, indifferent_to, &[]).await?;
        }
        Ok(earlier)
    }

    /// Removes data files that no version names, as far as the store allows.
    pub(crate) async fn remove_data_files(&self, name: &TableName, files: Vec<String>) {
        let data = self.table_path(name).join("data");
        let remove = |file: String| {
            let path = data.clone().join(file.as_str());
            async move {
                match self.inner.store.inner.delete(&path).await {
                    Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => tracing::debug!(%error, "a cleanup will remove {path}"),
                }
            }
        };
        stream::iter(files).map(remove).buffer_unordered(FILES_IN_FLIGHT).collect::<Vec<()>>().await;
    }

    /// Commits a change. Sets `may_be_stored` once a version may name the files of the change.
    async fn try_commit_exactly(&self, change: &ExactChange<'_>, may_be_stored: &mut bool) -> Result<CommittedChange> {
        self.inner.check_atomic_create().await?;
        let _committing = self.inner.committing.lock().await;
        let name = change.base.name();
        let mut searched = change.key.map_or(0, |key| key.since_version);
        let (mut attempts_left, mut faults_left) = (ATTEMPTS_MAX, FAULTS_MAX);
        loop {
            attempts_left -= 1;
            let newest = self.newest_of(name).await?;
            if let Some(earlier) = earlier(&newest, change.key, searched).await? {
                return Ok(earlier);
            }
            searched = newest.version();
            self.check_unchanged(change.base, &newest, change.indifferent_to, &change.files).await?;
            let transaction = change.transaction(&newest);
            let version = match self.execute_exactly(&newest, &transaction).await {
                Ok(dataset) => Some(dataset.manifest().version),
                Err(source) if source.is_commit_status_unknown() => {
                    *may_be_stored = true;
                    match self.is_next(&newest, &transaction).await? {
                        Some(true) => Some(newest.version() + 1),
                        Some(false) => None,
                        None => {
                            let (attempted, reason) = (change.attempted(), first_line(&source));
                            return Err(Error::OutcomeUnknown { attempted, reason });
                        }
                    }
                }
                Err(source) if is_conflict(&source) => None,
                Err(source) => {
                    // A request that failed or timed out may still take effect.
                    *may_be_stored = true;
                    let error = Error::storage(change.attempted(), source);
                    let may_succeed = error.kind() == ErrorKind::Unavailable && faults_left > 0 && attempts_left > 0;
                    if change.key.is_none() || !may_succeed {
                        return Err(error);
                    }
                    // The next attempt finds the commit by its key, if it took effect.
                    faults_left -= 1;
                    None
                }
            };
            if let Some(version) = version {
                *may_be_stored = true;
                if self.acknowledge(name, version, &change.traces(&transaction)).await?.is_some() {
                    return Ok(CommittedChange { version, properties: change.properties.clone() });
                }
            }
            if attempts_left == 0 {
                return Err(conflict(change.base, &newest, "others committed before each of its attempts"));
            }
            tokio::time::sleep(pause(ATTEMPTS_MAX - attempts_left)).await;
        }
    }

    pub(crate) async fn execute_exactly(
        &self,
        newest: &Table,
        transaction: &Transaction,
    ) -> lance_core::Result<Dataset> {
        let uri = self.table_uri(newest.name());
        let inner = commit_handler_from_url(&uri, &Some(self.inner.params.clone())).await?;
        let exact = ExactCommit { inner, version: newest.version() + 1 };
        let commit = CommitBuilder::new(WriteDestination::Dataset(newest.dataset().clone()))
            .with_store_params(self.inner.params.clone())
            .with_session(self.inner.session.clone())
            .with_commit_handler(Arc::new(exact))
            .with_max_retries(0);
        commit.execute(transaction.clone()).boxed().await
    }

    /// Whether the version after `base` is that of a transaction; `None` if there is no such version.
    pub(crate) async fn is_next(&self, base: &Table, own: &Transaction) -> Result<Option<bool>> {
        let newest = self.newest_of(base.name()).await?;
        if newest.version() <= base.version() {
            return Ok(None);
        }
        Ok(transaction(&newest, base.version() + 1).await?.map(|found| found.uuid == own.uuid))
    }

    pub(crate) async fn newest_of(&self, name: &TableName) -> Result<Table> {
        match self.try_latest(name).await? {
            Some(newest) => Ok(newest),
            None => Err(self.dropped(name)),
        }
    }

    /// The error of a change of a table that is gone.
    pub(crate) fn dropped(&self, name: &TableName) -> Error {
        let what = match name.branch() {
            Some(branch) => format!("branch '{branch}' of table {} in {}", name.root(), self.uri()),
            None => format!("table {name} in {}", self.uri()),
        };
        Error::NotFound { what, hint: "; it was dropped".into() }
    }

    /// Checks that only commits came after `base` that do not matter to a change that was computed on it. `files` are
    /// the data files that were written for the change. Takes requests only if the newest version has none of the
    /// fragments of `base`.
    ///
    /// # Errors
    /// [`Error::Conflict`]; storage errors.
    pub(crate) async fn check_unchanged(
        &self,
        base: &Table,
        newest: &Table,
        indifferent_to: IndifferentTo,
        files: &[String],
    ) -> Result<()> {
        check_contents(base, newest, indifferent_to)?;
        if newest.version() == base.version() || shares_a_file(base, newest) {
            return Ok(());
        }
        // The table may have been dropped and created again.
        let is_same = match self.at_version(newest, base.version(), &SnapshotRef::Version(base.version())).await {
            Ok(old) => old.dataset().manifest().transaction_file == base.dataset().manifest().transaction_file,
            // A cleanup removed the version. A drop of the table would have removed the files of the change too.
            Err(error) if error.kind() == ErrorKind::NotFound => self.has_files(base.name(), files).await?,
            Err(error) => return Err(error),
        };
        match is_same {
            true => Ok(()),
            false => Err(conflict(base, newest, CREATED_AGAIN)),
        }
    }

    /// Whether a table has all of these data files.
    pub(crate) async fn has_files(&self, name: &TableName, files: &[String]) -> Result<bool> {
        let data = self.table_path(name).join("data");
        let find = |file: String| {
            let path = data.clone().join(file.as_str());
            async move {
                match self.inner.store.inner.head(&path).await {
                    Ok(_) => Ok(true),
                    Err(object_store::Error::NotFound { .. }) => Ok(false),
                    Err(source) => Err(Error::storage(format!("looking for {path} in {}", self.inner.place), source)),
                }
            }
        };
        let found = stream::iter(files.to_vec()).map(find).buffer_unordered(FILES_IN_FLIGHT);
        let found: Vec<bool> = found.try_collect().await?;
        Ok(found.into_iter().all(|is_there| is_there))
    }
}

impl ExactChange<'_> {
    fn attempted(&self) -> String {
        format!("changing table {}", self.base.snapshot())
    }

    /// The transaction that makes the version after `newest`.
    fn transaction(&self, newest: &Table) -> Transaction {
        let mut properties = self.properties.clone();
        if let Some(key) = self.key {
            properties.insert(KEY_PROPERTY.to_string(), key.key.to_string());
        }
        if let Some(parent) = newest.dataset().manifest().transaction_file.clone().filter(|file| !file.is_empty()) {
            properties.insert(PARENT_PROPERTY.to_string(), parent);
        }
        TransactionBuilder::new(newest.version(), self.operation.clone())
            .transaction_properties(Some(Arc::new(properties)))
            .build()
    }

    fn traces(&self, transaction: &Transaction) -> Traces {
        let mut traces = Traces::of(transaction);
        traces.files.extend(self.files.iter().cloned());
        traces
    }
}

/// Returns the commit of a key among the versions after `since`.
async fn earlier(newest: &Table, key: Option<CommitKey<'_>>, since: u64) -> Result<Option<CommittedChange>> {
    let Some(key) = key else { return Ok(None) };
    match search(newest, key, since).await? {
        Search::Nothing => Ok(None),
        Search::Overtaken(version) => Err(Error::Overtaken { table: newest.name().to_string(), version }),
        Search::Committed(version) => {
            let found = transaction(newest, version).await?;
            let properties = found.and_then(|found| found.transaction_properties);
            Ok(Some(CommittedChange { version, properties: properties.as_deref().cloned().unwrap_or_default() }))
        }
    }
}

/// Checks that a version has what a change depends on that was computed on `base`.
fn check_contents(base: &Table, newest: &Table, indifferent_to: IndifferentTo) -> Result<()> {
    let (old, new) = (base.dataset().manifest(), newest.dataset().manifest());
    let is_other = match new.version == old.version {
        true => new.transaction_file != old.transaction_file,
        false => new.version < old.version,
    };
    if is_other {
        return Err(conflict(base, newest, CREATED_AGAIN));
    }
    if old.schema != new.schema {
        return Err(conflict(base, newest, "columns were added, dropped or changed"));
    }
    if new.version == old.version || indifferent_to == IndifferentTo::Rows {
        return Ok(());
    }
    let by_id: HashMap<u64, &Fragment> = new.fragments.iter().map(|fragment| (fragment.id, fragment)).collect();
    let is_there = |old: &Fragment| by_id.get(&old.id).is_some_and(|new| is_same(old, new));
    if !old.fragments.iter().all(is_there) {
        return Err(conflict(base, newest, "rows were updated, deleted or moved"));
    }
    if indifferent_to == IndifferentTo::Nothing && new.fragments.len() > old.fragments.len() {
        return Err(conflict(base, newest, "rows were added"));
    }
    Ok(())
}

/// Whether two versions have a data file in common. Its name is random, so both are versions of the same table.
fn shares_a_file(base: &Table, newest: &Table) -> bool {
    let files = base.dataset().fragments().iter().flat_map(|fragment| &fragment.files);
    // Another branch of the same name may share the files of its table.
    let own = files.filter(|file| file.base_id.is_none());
    newest.names_any(&own.map(|file| file.path.clone()).collect())
}

/// Whether a fragment has the same rows in two versions. The sizes of files are not compared: Lance fills in those that
/// a manifest does not have.
pub(crate) fn is_same(old: &Fragment, new: &Fragment) -> bool {
    let mut files = old.files.iter().zip(&new.files);
    old.files.len() == new.files.len()
        && files.all(|(old, new)| (&old.path, &old.fields, old.base_id) == (&new.path, &new.fields, new.base_id))
        && (old.physical_rows, &old.deletion_file) == (new.physical_rows, &new.deletion_file)
        && old.overlays == new.overlays
}

/// The error of a change that depends on what others changed.
pub(crate) fn conflict(base: &Table, newest: &Table, what: &str) -> Error {
    Error::Conflict { table: base.name().to_string(), version: newest.version(), what: what.to_string() }
}

/// A commit handler that commits one version only. A commit that Lance rebased to a later version is a conflict.
///
/// Lance rebases an append over all commits that came in between. A writer that searched the versions up to one of
/// them for an idempotency key must not be rebased over another commit with the same key.
#[derive(Debug)]
pub(crate) struct ExactCommit {
    pub inner: Arc<dyn CommitHandler>,
    pub version: u64,
}

#[async_trait::async_trait]
impl CommitHandler for ExactCommit {
    fn is_version_not_found_definitive(&self) -> bool {
        self.inner.is_version_not_found_definitive()
    }

    fn propagate_commit_error_after_success(&self) -> bool {
        self.inner.propagate_commit_error_after_success()
    }

    async fn resolve_latest_location(&self, base: &Path, store: &ObjectStore) -> lance_core::Result<ManifestLocation> {
        self.inner.resolve_latest_location(base, store).await
    }

    async fn resolve_version_location(
        &self,
        base: &Path,
        version: u64,
        store: &dyn object_store::ObjectStore,
    ) -> lance_core::Result<ManifestLocation> {
        self.inner.resolve_version_location(base, version, store).await
    }

    async fn version_exists(
        &self,
        base: &Path,
        version: u64,
        store: &dyn object_store::ObjectStore,
        naming: ManifestNamingScheme,
    ) -> lance_core::Result<bool> {
        self.inner.version_exists(base, version, store, naming).await
    }

    fn list_manifest_locations<'a>(
        &self,
        base: &Path,
        store: &'a ObjectStore,
        sorted_descending: bool,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.inner.list_manifest_locations(base, store, sorted_descending)
    }

    fn list_manifest_locations_since<'a>(
        &self,
        base: &Path,
        store: &'a ObjectStore,
        since_version: u64,
    ) -> BoxStream<'a, lance_core::Result<ManifestLocation>> {
        self.inner.list_manifest_locations_since(base, store, since_version)
    }

    async fn commit(
        &self,
        manifest: &mut Manifest,
        indices: Option<Vec<IndexMetadata>>,
        base: &Path,
        store: &ObjectStore,
        writer: ManifestWriter,
        naming: ManifestNamingScheme,
        transaction: Option<StoredTransaction>,
    ) -> Result<ManifestLocation, CommitError> {
        if manifest.version != self.version {
            return Err(CommitError::CommitConflict);
        }
        self.inner.commit(manifest, indices, base, store, writer, naming, transaction).await
    }
}
