//! Removal of old versions of tables, and of files that no version names.

mod lock;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt;
use lance::dataset::cleanup::CleanupPolicy;
use lance_io::local::to_local_path;
use object_store::path::Path;
use stoker_store::{StagedFiles, again, remove_staged};
use stoker_types::{ErrorKind, TableName, VersionInfo};

pub use lock::CleanupLock;

use crate::damage::caught;
use crate::holds::Hold;
use crate::lake::BRANCHES_FOLDER;
use crate::{Error, LakeStore, Result, Table};

/// The shortest retention, whatever a caller asks for: a reader may be about to open a version, or a writer to name a
/// file.
const KEEP_MIN: Duration = Duration::from_secs(24 * 3600);

/// The retention is at least this many times the longest commit. A commit that storage delays for longer could take
/// the number of a version that was removed.
const COMMIT_DEADLINES: u32 = 100;

/// The age from which on files are removed that no version names, as Lance does with those that it finds.
pub(crate) const DRAFT_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// The number of digits in the names of current manifests, which are 2^64 - 1 minus the version.
const DIGITS: usize = 20;

/// What a cleanup of a table removed, or would remove in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanedTable {
    /// The versions that are not needed any more, ascending. Of these, a version stays if a branch was made from it
    /// or a tag was added meanwhile.
    pub versions: BTreeSet<u64>,
    /// The number of versions that were removed, or would be.
    pub num_versions: u64,
    /// The number of files that were removed, or would be: data, deletions, transactions and indexes that no other
    /// version names, and files of writes that were abandoned at least seven days ago.
    pub num_files: u64,
    /// The size of these files in bytes.
    pub bytes: u64,
    /// The number of files that the store did not delete. The next cleanup finds them again.
    pub num_failed: u64,
    /// Old versions that stay because they have a tag, ascending.
    pub tagged: BTreeSet<u64>,
    /// Old versions that stay only because of the holds of streams that read them, ascending.
    pub held: BTreeSet<u64>,
    /// Whether, in a dry run, the counts are too low because expired holds still keep versions.
    pub is_partial: bool,
}

/// A version, and the time from which it has existed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dated {
    version: u64,
    since_millis: i64,
    kept_by: KeptBy,
}

/// What keeps a version from being removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptBy {
    Nothing,
    /// Only expired holds, until the cleanup deletes them.
    OldHolds,
    Holds,
    Tags,
}

impl KeptBy {
    fn of(version: &VersionInfo, holds: &[Hold], now: SystemTime) -> Self {
        let are_over: Vec<bool> =
            holds.iter().filter(|hold| hold.version == version.version).map(|hold| hold.is_over(now)).collect();
        match are_over.as_slice() {
            _ if !version.tags.is_empty() => Self::Tags,
            [] => Self::Nothing,
            are_over if are_over.iter().all(|is_over| *is_over) => Self::OldHolds,
            _ => Self::Holds,
        }
    }
}

impl LakeStore {
    /// How long replaced versions are retained when a caller asks for `keep`: at least a day, and at least 100 times
    /// as long as a commit to this lake's store may take.
    pub fn retention(&self, keep: Duration) -> Duration {
        keep.max(KEEP_MIN).max(self.inner.commit_deadline.saturating_mul(COMMIT_DEADLINES))
    }

    /// Removes the versions of a table that were replaced longer ago than [`LakeStore::retention`] of `keep` and have no
    /// tag, expired holds, and files that no version names. Versions after `spare_after` stay, too. A dry run removes
    /// nothing and reports what would be removed. Returns `None` when there is no such table.
    ///
    /// The time since a version was replaced counts from the next version, by the later of that version's own
    /// timestamp and of the time at which the store received it. Only one cleanup may run at a time:
    /// [`LakeStore::lock_cleanup`].
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] if a branch names files by another URI than that of the lake; storage errors. Files that
    /// were removed before an error stay removed.
    pub async fn clean_table(
        &self,
        name: &TableName,
        keep: Duration,
        spare_after: Option<u64>,
        dry_run: bool,
    ) -> Result<Option<CleanedTable>> {
        let Some(table) = self.try_latest(name).await? else { return Ok(None) };
        table.check_branches().await?;
        let now = SystemTime::now();
        let mut old: Vec<Dated> = replaced_before(self.dated(&table, now).await?, now_millis(), self.retention(keep));
        old.retain(|dated| spare_after.is_none_or(|last| dated.version <= last));
        let of = |by| {
            old.iter().filter(move |dated| dated.kept_by == by).map(|dated| dated.version).collect::<BTreeSet<u64>>()
        };
        let (mut versions, over) = (of(KeptBy::Nothing), of(KeptBy::OldHolds));
        let is_partial = dry_run && !over.is_empty();
        versions.extend(over);
        if !dry_run {
            let over: Vec<Hold> = table.list_holds().await?.into_iter().filter(|hold| hold.is_over(now)).collect();
            table.delete_holds(&over).await?;
        }
        let policy = CleanupPolicy {
            versions: Some(versions.iter().copied().collect()),
            error_if_tagged_old_versions: false,
            ..CleanupPolicy::default()
        };
        let clean = async || {
            let cleanup = table.dataset().cleanup(policy.clone());
            let stats = match dry_run {
                true => caught(cleanup.explain()).await.map(|explained| explained.stats),
                false => caught(cleanup.execute()).await,
            };
            stats.map_err(|source| Error::storage(format!("cleaning up table {name}"), source))
        };
        let stats = match clean().await {
            // A stream replaced its hold while Lance read all tags.
            Err(error) if error.kind() == ErrorKind::NotFound => clean().await?,
            stats => stats?,
        };
        if !dry_run {
            self.clean_measured(name).await?;
            self.clean_moves(&table).await?;
        }
        let staged = self.clean_staged(name, dry_run).await?;
        Ok(Some(CleanedTable {
            versions,
            num_versions: stats.old_versions,
            num_files: stats.data_files_removed
                + stats.transaction_files_removed
                + stats.index_files_removed
                + stats.deletion_files_removed
                + staged.num_files,
            bytes: stats.bytes_removed + staged.bytes,
            num_failed: stats.failed_deletes,
            tagged: of(KeptBy::Tags),
            held: of(KeptBy::Holds),
            is_partial,
        }))
    }

    /// Removes the files of a local table that processes began to write and did not complete.
    async fn clean_staged(&self, name: &TableName, dry_run: bool) -> Result<StagedFiles> {
        if !self.is_local() {
            return Ok(StagedFiles::default());
        }
        let folder = to_local_path(&self.table_path(name));
        let fail = |source: std::io::Error| Error::storage(format!("cleaning up table {name}"), source);
        let remove = move || remove_staged(folder.as_ref(), DRAFT_AGE, dry_run);
        let removed = tokio::task::spawn_blocking(remove).await.map_err(|source| fail(source.into()))?;
        removed.map_err(fail)
    }

    /// Lists all versions of a table, ascending.
    async fn dated(&self, table: &Table, now: SystemTime) -> Result<Vec<Dated>> {
        let folder = self.table_path(table.name()).join("_versions");
        let list = async || {
            let listed = self.inner.store.inner.list(Some(&folder)).try_collect::<Vec<_>>().await;
            listed.map_err(|source| Error::storage(format!("listing the versions of table {}", table.name()), source))
        };
        let stored: HashMap<u64, i64> = again(list)
            .await?
            .into_iter()
            .filter_map(|meta| Some((version_of(&meta.location)?, meta.last_modified.timestamp_millis())))
            .collect();
        let holds = table.list_holds().await?;
        let dated = |version: VersionInfo| Dated {
            version: version.version,
            since_millis: stored.get(&version.version).map_or(i64::MAX, |at| version.timestamp_millis.max(*at)),
            kept_by: KeptBy::of(&version, &holds, now),
        };
        let mut versions: Vec<Dated> = table.versions().await?.into_iter().map(dated).collect();
        versions.sort_by_key(|dated| dated.version);
        Ok(versions)
    }
}

impl Table {
    /// Checks that all branches name the files that they share by the URI of this lake. Lance compares these URIs as texts,
    /// and would take files for unused that a branch names by another one, such as one with a symbolic link.
    async fn check_branches(&self) -> Result<()> {
        let uri = self.dataset().uri();
        let root = match self.name().branch() {
            Some(branch) => uri.strip_suffix(&format!("/{BRANCHES_FOLDER}/{branch}")).unwrap_or(uri),
            None => uri,
        };
        let folder = format!("/{}.lance", self.name().root());
        for branch in self.branches().await?.iter().map(|branch| branch.name.as_str()) {
            let attempted = || format!("cleaning up table {}", self.name());
            let open = async || {
                let opened = caught(self.dataset().checkout_branch(branch)).await;
                opened.map_err(|source| Error::storage(attempted(), source))
            };
            let opened = match again(open).await {
                // It was just dropped.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                opened => opened?,
            };
            let mut bases = opened.manifest().base_paths.values().map(|base| base.path.trim_end_matches('/'));
            if let Some(other) = bases.find(|base| may_be_other_name(base, root, &folder)) {
                let reason = format!(
                    "its branch '{branch}' names files that it needs by the URI {other}, and not by {root}: open the lake \
                     at the place where that branch was made, or drop the branch"
                );
                return Err(Error::InvalidRequest { attempted: attempted(), reason });
            }
        }
        Ok(())
    }
}

/// Whether a URI may be another name of a table or of a branch of it. `root` is the URI of the table, and `folder` the last
/// part of it. Files elsewhere are those of other tables, which a cleanup of this one does not touch.
fn may_be_other_name(uri: &str, root: &str, folder: &str) -> bool {
    let branches = format!("/{BRANCHES_FOLDER}/");
    let is_known = uri.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with(&branches));
    !is_known && (uri.ends_with(folder) || uri.contains(&format!("{folder}{branches}")))
}

/// The current time in milliseconds since 1970-01-01 UTC.
fn now_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, millis)
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The versions whose next version has existed for longer than `kept_for`.
fn replaced_before(versions: Vec<Dated>, now_millis: i64, kept_for: Duration) -> Vec<Dated> {
    let oldest_kept = now_millis.saturating_sub(millis(kept_for));
    let later: Vec<i64> = versions.iter().skip(1).map(|dated| dated.since_millis).collect();
    versions.into_iter().zip(later).filter(|(_, replaced)| *replaced < oldest_kept).map(|(dated, _)| dated).collect()
}

/// The version of a manifest, parsed from its name.
pub(crate) fn version_of(path: &Path) -> Option<u64> {
    let number = path.filename()?.strip_suffix(".manifest")?;
    let parsed: u64 = number.parse().ok()?;
    Some(if number.len() == DIGITS { u64::MAX - parsed } else { parsed })
}
