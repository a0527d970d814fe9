//! Atomic commits of written fragments.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use futures::future::try_join_all;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use lance::Dataset;
use lance::dataset::{CommitBuilder, WriteDestination};
use lance_core::datatypes::Schema;
use lance_file::version::LanceFileVersion;
use lance_table::io::commit::commit_handler_from_url;
use lance_table::transaction::{Operation, Transaction, TransactionBuilder};
use stoker_pages::with_media_uncompressed;
use stoker_store::first_line;
use stoker_types::{ErrorKind, TableName};

use crate::exact_commit::{ExactCommit, IndifferentTo};
use crate::lineage::{Lineage, Traces};
use crate::write::{FragmentDraft, check_names, check_schema, with_larger_losses};
use crate::{Error, LakeStore, Result, Table};

/// The key of the transaction property that holds an idempotency key.
pub(crate) const KEY_PROPERTY: &str = "stoker.idempotency_key";

/// The maximum number of attempts to commit while other commits come in between.
pub(crate) const ATTEMPTS_MAX: u32 = 200;

/// The number of attempts that Lance makes within one of ours to commit without a key. Tests make fewer, so that some of
/// their writers lose all of them.
const ATTEMPTS_OF_LANCE: u32 = if cfg!(test) { 2 } else { 20 };

/// The maximum number of transactions that are read at the same time.
pub(crate) const TRANSACTIONS_IN_FLIGHT: usize = 8;

/// The maximum number of fragments whose files are looked for at the same time.
const DRAFTS_IN_FLIGHT: usize = 32;

/// What a commit does with the existing rows of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// The table must not exist.
    Create,
    /// The table must exist; the rows are appended.
    Append,
    /// The rows are appended to the table, which is created when it does not exist.
    CreateOrAppend,
    /// The new version holds only these rows.
    Overwrite,
}

/// An idempotency key. Commits with the same key take effect once, however often and from however many processes they
/// are made.
#[derive(Clone, Copy, Debug)]
pub struct CommitKey<'a> {
    /// The key. It is stored in the transaction of the version.
    pub key: &'a str,
    /// A version of the table from before the first attempt; only later versions are searched for the key. 0 searches
    /// all versions.
    pub since_version: u64,
    /// The version by which the rows were chosen. The commit is refused when a later version has another key or
    /// replaced rows. `None` refuses nothing.
    pub chosen_at: Option<u64>,
}

/// The keyed commits of a table, and whether the list is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyedCommits {
    /// Version and key of each commit, newest first.
    pub found: Vec<(u64, String)>,
    /// Whether none of the versions that were searched had been cleaned up.
    pub is_complete: bool,
}

impl LakeStore {
    /// Makes written fragments visible in one atomic step: readers see all of them or none. Returns the new version.
    ///
    /// With a key, an earlier commit of the same key is looked up first. If there is one, its version is returned and
    /// nothing is committed.
    ///
    /// If rows are appended that have larger errors in lossy columns than the table says, a version before says so first: at
    /// no version are the errors larger than said.
    ///
    /// # Errors
    /// [`Error::UnsafeStore`], [`Error::TableExists`], [`Error::NotFound`], [`Error::InvalidData`] for a schema that
    /// does not fit and for fragments whose files a drop of the table removed, [`Error::Overtaken`] as
    /// [`CommitKey::chosen_at`] says, storage errors: the lake stays as it was. [`Error::OutcomeUnknown`] when
    /// nothing tells whether the commit took effect.
    pub async fn commit(
        &self,
        name: &TableName,
        schema: &SchemaRef,
        mode: CommitMode,
        fragments: Vec<FragmentDraft>,
        key: Option<CommitKey<'_>>,
    ) -> Result<u64> {
        if matches!(mode, CommitMode::Append | CommitMode::CreateOrAppend) {
            self.note_losses(name, &fragments).await?;
        }
        self.commit_after(None, name, schema, mode, fragments, key).await
    }

    /// Replaces the rows and columns of a table by fragments that were computed from `base`, a version of it. Takes
    /// effect once under the key, as [`LakeStore::commit`] does.
    ///
    /// # Errors
    /// [`Error::Conflict`] if anything but commits of indexes and settings came after `base`, and [`Error::NotFound`] if
    /// the table was dropped; those of [`LakeStore::commit`]. The table stays as it was.
    pub async fn replace(
        &self,
        base: &Table,
        schema: &SchemaRef,
        fragments: Vec<FragmentDraft>,
        key: CommitKey<'_>,
    ) -> Result<u64> {
        self.commit_after(Some(base), base.name(), schema, CommitMode::Overwrite, fragments, Some(key)).await
    }

    /// Commits fragments. If they were computed from the version `base`, others must have left it as it was.
    async fn commit_after(
        &self,
        base: Option<&Table>,
        name: &TableName,
        schema: &SchemaRef,
        mode: CommitMode,
        fragments: Vec<FragmentDraft>,
        key: Option<CommitKey<'_>>,
    ) -> Result<u64> {
        self.inner.check_atomic_create().await?;
        let _committing = self.inner.committing.lock().await;
        let mut searched = key.map_or(0, |key| key.since_version);
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let existing = self.try_latest(name).await?;
            let newest = existing.as_ref().map_or(0, Table::version);
            if let (Some(table), Some(key)) = (&existing, key) {
                match search(table, key, searched).await? {
                    Search::Committed(version) => return Ok(version),
                    Search::Overtaken(version) if !table.holds(&fragments) => {
                        return Err(Error::Overtaken { table: name.to_string(), version });
                    }
                    Search::Overtaken(_) | Search::Nothing => {}
                }
            }
            if let (Some(table), Some(_)) = (&existing, key)
                && table.holds(&fragments)
            {
                // The version of the commit was cleaned up, but the table still has its rows.
                return Ok(newest);
            }
            searched = newest;
            match (base, &existing) {
                (Some(base), Some(table)) => {
                    let files: Vec<String> = fragments.iter().flat_map(FragmentDraft::files).collect();
                    self.check_unchanged(base, table, IndifferentTo::Nothing, &files).await?;
                }
                (Some(_), None) => return Err(self.dropped(name)),
                (None, _) => {}
            }
            if !self.has_drafts(name, mode, existing.as_ref(), key, &fragments).await? {
                let reason = "it was dropped while rows were written: write them again".into();
                return Err(Error::InvalidData { table: name.to_string(), reason });
            }
            let operation = self.operation(name, schema, mode, &fragments, existing.as_ref())?;
            let result = self.execute(name, existing.as_ref(), operation, key).await;
            match result {
                Ok(dataset) => {
                    let manifest = dataset.manifest();
                    let transaction_file = manifest.transaction_file.clone();
                    let traces = Traces { transaction_file, files: files(&fragments), ..Traces::default() };
                    match self.acknowledge(name, manifest.version, &traces).await? {
                        Some(version) => return Ok(version),
                        None if attempts_left > 0 => {}
                        None => return Err(lost(name, manifest.version)),
                    }
                }
                Err(error) => match self.try_latest(name).await? {
                    // The response was lost, but the commit took effect.
                    Some(now) if key.is_none() && now.holds(&fragments) => return Ok(now.version()),
                    // Other writers were faster each time. The fragments are in no version, so they may be committed
                    // again.
                    Some(_) if key.is_none() && is_lost_race(&error) && attempts_left > ATTEMPTS_OF_LANCE => {
                        attempts_left -= ATTEMPTS_OF_LANCE;
                        tokio::time::sleep(pause(ATTEMPTS_MAX - attempts_left)).await;
                    }
                    // Another writer created the table or committed in between, or the response was lost: search for
                    // the key again.
                    Some(now)
                        if now.version() > newest
                            && (existing.is_none() || key.is_some())
                            && may_be_a_conflict(&error)
                            // Without a key, a commit whose outcome is unknown could not be found again.
                            && (key.is_some() || !matches!(error, Error::OutcomeUnknown { .. }))
                            && attempts_left > 0 =>
                    {
                        tokio::time::sleep(pause(ATTEMPTS_MAX - attempts_left)).await;
                    }
                    _ => return Err(error),
                },
            }
        }
    }

    /// Whether the files of fragments exist. They are looked for only if the table that their writer saw may be gone: a
    /// drop removes them too.
    async fn has_drafts(
        &self,
        name: &TableName,
        mode: CommitMode,
        existing: Option<&Table>,
        key: Option<CommitKey<'_>>,
        drafts: &[FragmentDraft],
    ) -> Result<bool> {
        let is_other_table = match (mode, existing) {
            (CommitMode::Create, _) | (CommitMode::Append, None) => false,
            (CommitMode::CreateOrAppend | CommitMode::Overwrite, None) => true,
            // A newest version below the one that the writer saw belongs to a table that was created later.
            (_, Some(table)) => key.is_some_and(|key| key.since_version > table.version()),
        };
        // A branch that was dropped and made again begins at the same number.
        let is_other_table = is_other_table || name.branch().is_some();
        if is_other_table {
            for some in drafts.chunks(DRAFTS_IN_FLIGHT) {
                let found = try_join_all(some.iter().map(|draft| self.draft_exists(name, draft))).await?;
                if found.contains(&false) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn operation(
        &self,
        name: &TableName,
        schema: &SchemaRef,
        mode: CommitMode,
        drafts: &[FragmentDraft],
        existing: Option<&Table>,
    ) -> Result<Operation> {
        let fragments = drafts.iter().cloned().map(FragmentDraft::into_fragment).collect();
        let fits = |schema: &Schema| {
            if drafts.iter().all(|draft| draft.fits(schema)) {
                return Ok(());
            }
            let reason = "the fragments were written for another schema of the table; write them again".into();
            Err(Error::InvalidData { table: name.to_string(), reason })
        };
        if existing.is_none() && name.branch().is_some() {
            return Err(self.dropped(name));
        }
        match (mode, existing) {
            (CommitMode::Create, Some(_)) => {
                Err(Error::TableExists { table: name.to_string(), lake: self.uri().to_string() })
            }
            (CommitMode::Append, None) => {
                let what = format!("table {name} in {}", self.uri());
                Err(Error::NotFound { what, hint: "; create it first".into() })
            }
            (CommitMode::Append | CommitMode::CreateOrAppend, Some(table)) => {
                table.refuse_rows_with_blobs()?;
                check_schema(name, &table.schema(), schema)?;
                fits(table.dataset().schema())?;
                Ok(Operation::Append { fragments })
            }
            (CommitMode::Create | CommitMode::CreateOrAppend | CommitMode::Overwrite, _) => {
                check_names(name, schema)?;
                let schema = with_larger_losses(schema, drafts);
                let schema = Schema::try_from(with_media_uncompressed(&schema).as_ref());
                let schema = schema.map_err(|source| Error::storage(format!("creating table {name}"), source))?;
                fits(&schema)?;
                Ok(Operation::Overwrite { fragments, schema, config_upsert_values: None, initial_bases: None })
            }
        }
    }

    async fn execute(
        &self,
        name: &TableName,
        existing: Option<&Table>,
        operation: Operation,
        key: Option<CommitKey<'_>>,
    ) -> Result<Dataset> {
        let attempted = || format!("committing to table {name} in {}", self.inner.place);
        let properties = key.map(|key| Arc::new(HashMap::from([(KEY_PROPERTY.to_string(), key.key.to_string())])));
        let transaction = TransactionBuilder::new(existing.map_or(0, Table::version), operation)
            .transaction_properties(properties)
            .build();
        let uri = self.table_uri(name);
        let destination = match existing {
            Some(table) => WriteDestination::Dataset(table.dataset().clone()),
            None => WriteDestination::Uri(&uri),
        };
        let mut commit = CommitBuilder::new(destination)
            .with_store_params(self.inner.params.clone())
            .with_session(self.inner.session.clone())
            .with_storage_format(LanceFileVersion::V2_2);
        commit = commit.with_max_retries(ATTEMPTS_OF_LANCE);
        if existing.is_none() {
            // With a retry, Lance would overwrite a table that another writer created meanwhile. Without, that is a
            // conflict.
            commit = commit.with_max_retries(0);
        }
        if let (Some(table), Some(_)) = (existing, key) {
            let inner = commit_handler_from_url(&uri, &Some(self.inner.params.clone())).await;
            let inner = inner.map_err(|source| Error::storage(attempted(), source))?;
            let exact = ExactCommit { inner, version: table.version() + 1 };
            commit = commit.with_commit_handler(Arc::new(exact)).with_max_retries(0);
        }
        let committed = commit.execute(transaction).boxed().await;
        committed.map_err(|source| match source.is_commit_status_unknown() {
            true => Error::OutcomeUnknown { attempted: attempted(), reason: first_line(&source) },
            false => Error::storage(attempted(), source),
        })
    }

    /// Finds out whether a commit is part of the table's history. Storage may accept a commit that stalled across a
    /// cleanup although it is lost; it counts only when later versions came from it. Returns `None` for a lost
    /// commit. Its version is no part of the history, and its fragments may be committed again.
    pub(crate) async fn acknowledge(&self, name: &TableName, version: u64, traces: &Traces) -> Result<Option<u64>> {
        let lineage = match self.try_latest(name).await? {
            Some(newest) if newest.version() >= version => self.lineage(&newest, version, traces).await?,
            _ => Lineage::Unknown,
        };
        match lineage {
            Lineage::Kept => Ok(Some(version)),
            Lineage::Lost => Ok(None),
            Lineage::Unknown => Err(unknown(name, version)),
        }
    }
}

/// The names of all data files of the drafts.
fn files(drafts: &[FragmentDraft]) -> HashSet<String> {
    drafts.iter().flat_map(FragmentDraft::files).collect()
}

/// The error of a commit that is no part of its table's history.
pub(crate) fn lost(name: &TableName, version: u64) -> Error {
    Error::Storage {
        attempted: format!("committing version {version} of table {name}"),
        kind: ErrorKind::Unavailable,
        source: "storage was slow, and meanwhile others committed without this version: repeat the commit".into(),
    }
}

/// The error of a commit when all versions were cleaned up that would tell whether it is part of its table's history.
fn unknown(name: &TableName, version: u64) -> Error {
    Error::OutcomeUnknown {
        attempted: format!("committing version {version} of table {name}"),
        reason: "storage was slow, and a cleanup removed the versions that show the outcome".into(),
    }
}

/// Whether an attempt may have failed because of another commit. An attempt that failed for another reason would fail
/// again.
fn may_be_a_conflict(error: &Error) -> bool {
    use ErrorKind::{AlreadyExists, NotFound, Unavailable};
    matches!(error.kind(), AlreadyExists | NotFound | Unavailable)
}

/// Whether other commits came before each attempt of Lance's, so that this one is in no version.
fn is_lost_race(error: &Error) -> bool {
    let Error::Storage { source, .. } = error else { return false };
    matches!(source.downcast_ref(), Some(lance_core::Error::CommitConflict { .. }))
}

/// Whether Lance refused a commit because of a concurrent commit.
pub(crate) fn is_conflict(error: &lance_core::Error) -> bool {
    use lance_core::Error::{CommitConflict, IncompatibleTransaction, RetryableCommitConflict, TooMuchWriteContention};
    matches!(
        error,
        CommitConflict { .. }
            | IncompatibleTransaction { .. }
            | RetryableCommitConflict { .. }
            | TooMuchWriteContention { .. }
    )
}

/// The time before the next attempt: random, from 0 to a bound that doubles with each attempt, from 20 ms to 1.28 s.
pub(crate) fn pause(attempts: u32) -> Duration {
    let bound = 10 << attempts.min(7);
    Duration::from_millis(RandomState::new().hash_one(attempts) % bound)
}

impl Table {
    /// Whether this version names a data file of these drafts, which means that it descends from their commit.
    pub fn holds(&self, drafts: &[FragmentDraft]) -> bool {
        self.names_any(&files(drafts))
    }

    /// Returns the version that a key was committed as, newest first. Reads the transaction of each version after the key's,
    /// with one or more requests.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] when a cleanup removed what tells whether the commit counts; storage errors.
    pub async fn find_commit(&self, key: CommitKey<'_>) -> Result<Option<u64>> {
        match search(self, key, key.since_version).await? {
            Search::Committed(version) => Ok(Some(version)),
            Search::Overtaken(_) | Search::Nothing => Ok(None),
        }
    }

    /// The keyed commits after version `since`, newest first, back to the last version that created or replaced all
    /// rows, or with which a branch began. If a later version restored an older one, the search goes back to `since`, because the restored rows may
    /// be older. Reads the transaction of each version searched, with one or more requests.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn keyed_commits(&self, since: u64) -> Result<KeyedCommits> {
        let mut commits = KeyedCommits { found: Vec::new(), is_complete: true };
        let mut was_restored = false;
        let mut transactions = transactions(self, since + 1);
        while let Some((version, transaction)) = transactions.try_next().await? {
            let Some(transaction) = transaction else {
                commits.is_complete = false;
                continue;
            };
            commits.found.extend(key_of(&transaction).map(|key| (version, key.to_string())));
            was_restored |= matches!(transaction.operation, Operation::Restore { .. });
            if matches!(transaction.operation, Operation::Overwrite { .. } | Operation::Clone { .. }) && !was_restored {
                break;
            }
        }
        Ok(commits)
    }
}

/// The result of a search for a key in the versions of a table.
pub(crate) enum Search {
    /// The key was committed as this version.
    Committed(u64),
    /// The key was not committed, and this version came after the one by which the rows were chosen.
    Overtaken(u64),
    Nothing,
}

/// Searches the versions after `since` for a key, newest first.
pub(crate) async fn search(table: &Table, key: CommitKey<'_>, since: u64) -> Result<Search> {
    // A newest version below `since` belongs to another table, which was created later under the same name.
    let since = if since <= table.version() { since } else { 0 };
    let chosen_at = key.chosen_at.unwrap_or(u64::MAX);
    let is_other_table = key.chosen_at.is_some_and(|version| version > table.version());
    let mut found = if is_other_table { Search::Overtaken(table.version()) } else { Search::Nothing };
    let mut transactions = transactions(table, since + 1);
    while let Some((version, transaction)) = transactions.try_next().await? {
        let Some(transaction) = transaction else { continue };
        if key_of(&transaction) == Some(key.key) {
            match counts(table, version, &transaction).await? {
                true => return Ok(Search::Committed(version)),
                false => continue,
            }
        }
        let overtakes = key_of(&transaction).is_some() || replaces_rows(&transaction);
        if version > chosen_at && overtakes && matches!(found, Search::Nothing) {
            found = Search::Overtaken(version);
        }
    }
    Ok(found)
}

/// Whether a commit is part of the history of a table.
///
/// # Errors
/// [`Error::OutcomeUnknown`] when all versions that would tell were cleaned up; storage errors.
pub(crate) async fn counts(table: &Table, version: u64, transaction: &Transaction) -> Result<bool> {
    match table.lake().lineage(table, version, &Traces::of(transaction)).await? {
        Lineage::Kept => Ok(true),
        Lineage::Lost => Ok(false),
        Lineage::Unknown => Err(unknown(table.name(), version)),
    }
}

fn replaces_rows(transaction: &Transaction) -> bool {
    matches!(transaction.operation, Operation::Overwrite { .. } | Operation::Restore { .. })
}

/// The transactions of the versions from `oldest` on, newest first; `None` for versions that were cleaned up.
fn transactions(table: &Table, oldest: u64) -> BoxStream<'_, Result<(u64, Option<Transaction>)>> {
    let versions = (oldest..=table.version()).rev();
    let read = move |version| async move { Ok((version, transaction(table, version).await?)) };
    stream::iter(versions).map(read).buffered(TRANSACTIONS_IN_FLIGHT).boxed()
}

/// The idempotency key of a transaction.
pub(crate) fn key_of(transaction: &Transaction) -> Option<&str> {
    let properties = transaction.transaction_properties.as_ref();
    properties.and_then(|properties| properties.get(KEY_PROPERTY)).map(String::as_str)
}

/// Reads the transaction that made a version. Returns `None` for versions that were cleaned up.
pub(crate) async fn transaction(table: &Table, version: u64) -> Result<Option<Transaction>> {
    match table.dataset().read_transaction_by_version(version).await {
        Ok(transaction) => Ok(transaction),
        Err(source) => {
            let attempted = format!("reading the transaction of version {version} of table {}", table.name());
            match Error::storage(attempted, source) {
                error if error.kind() == ErrorKind::NotFound => Ok(None),
                error => Err(error),
            }
        }
    }
}
