//! The commit of rewritten groups, with the indexes that follow their rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lance_table::format::{Fragment, IndexMetadata};
use lance_table::transaction::{Operation, RewriteGroup, Transaction, TransactionBuilder};
use stoker_store::first_line;
use stoker_types::{ErrorKind, ProgressSink, StatementProgress};
use uuid::Uuid;

use super::indexes::{Followers, covers};
use super::rewrite::RewrittenGroup;
use crate::change::WrittenFiles;
use crate::commit::{is_conflict, pause};
use crate::exact_commit::{IndifferentTo, conflict, is_same};
use crate::lineage::{PARENT_PROPERTY, Traces};
use crate::moves::{MOVES_PROPERTY, MovedGroup, Moves, NewFragment, OldFragment};
use crate::{ChangeNote, Error, LakeStore, Result, Table};

/// The most attempts to commit while others commit.
const ATTEMPTS_MAX: u32 = 50;

/// The number of times that the indexes are written again before the ids of the new fragments are reserved. Without a
/// reservation, a commit of others that adds fragments takes these ids.
const UNRESERVED_MAX: u32 = 2;

/// The age from which on it is checked that no cleanup removed the files of a compaction. Cleanups keep files that no
/// version names for seven days.
const CHECKED_AGE: Duration = Duration::from_secs(5 * 24 * 3600);

/// What was committed.
pub(super) struct Committed {
    pub version: u64,
    pub groups: Vec<RewrittenGroup>,
    /// The names of the indexes that follow the rows.
    pub indexes: Vec<String>,
    /// The number of fragments of which others changed the rows meanwhile.
    pub num_left: u64,
}

/// Groups that are to be committed.
struct GroupCommit<'a> {
    base: &'a Table,
    groups: Vec<RewrittenGroup>,
    /// The files of groups that are left out, because others changed their fragments.
    left_files: Vec<String>,
    num_left: u64,
    /// The id of the first new fragment, if the ids are reserved.
    reserved: Option<u64>,
    /// The name under which the old and the new addresses of the rows are kept.
    key: Uuid,
}

/// Indexes that were written again for new fragments from this id on.
struct Ready {
    first_id: u64,
    num_groups: usize,
    followers: Followers,
}

/// The result of one attempt.
enum Attempt {
    Committed(u64),
    /// Others committed first.
    Lost,
}

impl Table {
    /// Commits groups as one version. Leaves out groups of which others changed a fragment since this version.
    ///
    /// Files in `written` that no version may name stay there.
    pub(super) async fn commit_groups(
        &self,
        groups: Vec<RewrittenGroup>,
        note: &ChangeNote,
        written: &WrittenFiles,
        began: Instant,
        progress: &ProgressSink<'_>,
    ) -> Result<Committed> {
        let lake = self.lake().clone();
        let (left_files, key) = (Vec::new(), Uuid::new_v4());
        let mut commit = GroupCommit { base: self, groups, left_files, num_left: 0, reserved: None, key };
        let (mut attempts_left, mut num_written) = (ATTEMPTS_MAX, 0);
        let mut ready: Option<Ready> = None;
        loop {
            attempts_left -= 1;
            let committing = lake.inner.committing.lock().await;
            let newest = lake.newest_of(self.name()).await?;
            commit.check(&newest, began).await?;
            let indexes = newest.stored_indexes().await?;
            let fits = ready.as_ref().is_some_and(|ready| commit.fits(ready, &newest, &indexes));
            let Some(done) = ready.as_ref().filter(|_| fits) else {
                drop(committing);
                if attempts_left == 0 {
                    return Err(conflict(self, &newest, "others committed before each of its attempts"));
                }
                if commit.has_followers(&indexes) {
                    progress(StatementProgress::phase("giving indexes the new addresses"));
                }
                if num_written >= UNRESERVED_MAX && commit.reserved.is_none() {
                    commit.reserved = lake.reserve_fragments(self, commit.num_new()).await?;
                    num_written = UNRESERVED_MAX - 1;
                    continue;
                }
                num_written += 1;
                commit.number(&newest);
                let followers = newest.followers(&commit.groups, &indexes).await?;
                let (first_id, num_groups) = (commit.first_id(&newest), commit.groups.len());
                ready = Some(Ready { first_id, num_groups, followers });
                continue;
            };
            progress(StatementProgress::phase("committing"));
            commit.number(&newest);
            match commit.attempt(&newest, &done.followers, note, written).await? {
                Attempt::Committed(version) => {
                    written.take();
                    written.add(commit.left_files);
                    let indexes = done.followers.names.clone();
                    return Ok(Committed { version, groups: commit.groups, indexes, num_left: commit.num_left });
                }
                Attempt::Lost if attempts_left > 0 => {
                    drop(committing);
                    tokio::time::sleep(pause(ATTEMPTS_MAX - attempts_left)).await;
                }
                Attempt::Lost => {
                    return Err(conflict(self, &newest, "others committed before each of its attempts"));
                }
            }
        }
    }
}

impl GroupCommit<'_> {
    /// Checks what others did since the rows were read, and leaves out the groups that they changed.
    async fn check(&mut self, newest: &Table, began: Instant) -> Result<()> {
        let lake = self.base.lake();
        let files: Vec<String> = self.groups.iter().flat_map(RewrittenGroup::files).collect();
        lake.check_unchanged(self.base, newest, IndifferentTo::Rows, &files).await?;
        let by_id: HashMap<u64, &Fragment> =
            newest.dataset().fragments().iter().map(|fragment| (fragment.id, fragment)).collect();
        let is_there = |old: &Fragment| by_id.get(&old.id).is_some_and(|new| is_same(old, new));
        let is_unchanged = |group: &RewrittenGroup| group.old.iter().all(is_there);
        let (kept, changed): (Vec<_>, Vec<_>) = std::mem::take(&mut self.groups).into_iter().partition(is_unchanged);
        self.groups = kept;
        for group in changed {
            self.num_left += group.old.len() as u64;
            self.left_files.extend(group.files());
        }
        if self.groups.is_empty() {
            return Err(conflict(self.base, newest, "rows were updated, deleted or moved"));
        }
        if began.elapsed() > CHECKED_AGE && !lake.has_files(self.base.name(), &files).await? {
            let what = "the compaction took days, and a cleanup removed files of it: compact with a higher rate";
            return Err(conflict(self.base, newest, what));
        }
        Ok(())
    }

    fn num_new(&self) -> u32 {
        let num_new = self.groups.iter().map(|group| group.new.len()).sum::<usize>();
        u32::try_from(num_new).unwrap_or(u32::MAX)
    }

    /// The id of the first new fragment in the version after `newest`.
    fn first_id(&self, newest: &Table) -> u64 {
        let next = newest.dataset().manifest().max_fragment_id().map_or(0, |id| id + 1);
        self.reserved.unwrap_or(next)
    }

    /// Gives the new fragments their ids.
    fn number(&mut self, newest: &Table) {
        let first = self.first_id(newest);
        let new = self.groups.iter_mut().flat_map(|group| &mut group.new);
        (first..).zip(new).for_each(|(id, fragment)| fragment.id = id);
    }

    /// The ids of the fragments that are written again.
    fn old_ids(&self) -> HashSet<u64> {
        self.groups.iter().flat_map(|group| &group.old).map(|old| old.id).collect()
    }

    /// Whether indexes cover the fragments.
    fn has_followers(&self, indexes: &[IndexMetadata]) -> bool {
        let fragments = self.old_ids();
        indexes.iter().any(|index| covers(index, &fragments))
    }

    /// Whether indexes that were written again are those of the newest version, for the same fragments.
    fn fits(&self, ready: &Ready, newest: &Table, indexes: &[IndexMetadata]) -> bool {
        let has_ids = ready.followers.rewritten.is_empty() || ready.first_id == self.first_id(newest);
        has_ids && ready.num_groups == self.groups.len() && ready.followers.are_of(indexes, &self.old_ids())
    }

    /// Commits the groups as the version after `newest`.
    async fn attempt(
        &self,
        newest: &Table,
        followers: &Followers,
        note: &ChangeNote,
        written: &WrittenFiles,
    ) -> Result<Attempt> {
        let lake = self.base.lake();
        let transaction = self.transaction(newest, followers, note);
        let moves = Moves::new(newest.version(), self.groups.iter().map(moved).collect());
        lake.put_moves(self.base.name(), self.key, &moves).await?;
        let version = match lake.execute_exactly(newest, &transaction).await {
            Ok(dataset) => dataset.manifest().version,
            Err(source) if is_conflict(&source) => return Ok(Attempt::Lost),
            // Lance may also fail because it finds another version in place of this one.
            Err(source) => match lake.is_next(newest, &transaction).await {
                Ok(Some(true)) => newest.version() + 1,
                Ok(Some(false)) => return Ok(Attempt::Lost),
                Ok(None) | Err(_) => return Err(self.failed(source, written)),
            },
        };
        match lake.acknowledge(self.base.name(), version, &Traces::of(&transaction)).await {
            Ok(Some(version)) => {
                lake.confirm_moves(self.base.name(), self.key, version).await;
                Ok(Attempt::Committed(version))
            }
            Ok(None) => Ok(Attempt::Lost),
            Err(error) => {
                written.take();
                Err(error)
            }
        }
    }

    /// The error of a commit that may still take effect: a request may have timed out. Its files stay, for a version may
    /// name them.
    fn failed(&self, source: lance_core::Error, written: &WrittenFiles) -> Error {
        written.take();
        let attempted = self.base.compacting();
        if source.is_commit_status_unknown() {
            return Error::OutcomeUnknown { attempted, reason: first_line(&source) };
        }
        match Error::storage(attempted.as_str(), source) {
            Error::Storage { kind: ErrorKind::Unavailable, source, .. } => {
                Error::OutcomeUnknown { attempted, reason: first_line(&source) }
            }
            error => error,
        }
    }

    fn transaction(&self, newest: &Table, followers: &Followers, note: &ChangeNote) -> Transaction {
        let group = |group: &RewrittenGroup| RewriteGroup {
            old_fragments: group.old.clone(),
            new_fragments: group.new.clone(),
        };
        let operation = Operation::Rewrite {
            groups: self.groups.iter().map(group).collect(),
            rewritten_indices: followers.rewritten.clone(),
            frag_reuse_index: None,
        };
        let mut properties = note.properties.clone();
        properties.insert(MOVES_PROPERTY.to_string(), self.key.to_string());
        if let Some(parent) = newest.dataset().manifest().transaction_file.clone().filter(|file| !file.is_empty()) {
            properties.insert(PARENT_PROPERTY.to_string(), parent);
        }
        TransactionBuilder::new(newest.version(), operation).transaction_properties(Some(Arc::new(properties))).build()
    }
}

/// The old and the new addresses of the rows of a group.
fn moved(group: &RewrittenGroup) -> MovedGroup {
    let num_rows = |fragment: &Fragment| fragment.physical_rows.unwrap_or(0) as u64;
    let old = group.old.iter().zip(&group.deleted);
    MovedGroup {
        old: old
            .map(|(old, gone)| OldFragment { id: old.id, num_rows: num_rows(old), deleted: gone.clone() })
            .collect(),
        new: group.new.iter().map(|new| NewFragment { id: new.id, num_rows: num_rows(new) }).collect(),
    }
}

impl LakeStore {
    /// Reserves ids for fragments by a version without other changes. Returns the first id; `None` if others committed
    /// first.
    async fn reserve_fragments(&self, table: &Table, num_fragments: u32) -> Result<Option<u64>> {
        let newest = self.newest_of(table.name()).await?;
        let operation = Operation::ReserveFragments { num_fragments };
        let transaction = TransactionBuilder::new(newest.version(), operation).build();
        match self.execute_exactly(&newest, &transaction).await {
            Ok(dataset) => {
                let last = dataset.manifest().max_fragment_id().unwrap_or(0);
                Ok(Some(last + 1 - u64::from(num_fragments)))
            }
            Err(source) if is_conflict(&source) => Ok(None),
            Err(source) => Err(Error::storage(table.compacting(), source)),
        }
    }
}
