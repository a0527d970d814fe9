//! Deletion of rows by address.
//!
//! A row is deleted by Lance's deletion vectors: no data file is rewritten, older versions keep the row, and all Lance
//! readers see the same rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use lance::dataset::fragment::FileFragment;
use lance::dataset::{CommitBuilder, WriteDestination};
use lance_table::transaction::{Operation, TransactionBuilder, UpdateMode};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::commit::{is_conflict, lost, transaction};
use crate::damage::{caught, decode_error};
use crate::row_id_set::row_offset;
use crate::{ChangeNote, Error, LakeStore, Result, Table};

/// The maximum number of attempts to commit. An attempt is repeated when another commit changed the rows' fragments.
const ATTEMPTS_MAX: u32 = 50;

/// The number of deletion vectors that are read or written at the same time.
const FRAGMENTS_IN_FLIGHT: usize = 16;

/// The result of a deletion of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedRows {
    /// The version that does not have the rows: a new one, or the newest one if all of them were deleted already.
    pub version: u64,
    /// The number of rows that this call deleted.
    pub num_deleted: u64,
    /// The number of rows that were deleted before this call.
    pub num_deleted_before: u64,
}

/// Rows, separated by whether a version has them.
struct Selection {
    /// For each fragment, the offsets of the rows that the version has, ascending.
    present: Vec<(FileFragment, Vec<u32>)>,
    /// The number of rows that the version has deleted.
    num_deleted: u64,
}

impl LakeStore {
    /// Deletes rows from the next version of a table and from those after it, in one atomic step. Earlier versions, and
    /// streams that are pinned to them, keep the rows.
    ///
    /// Addresses may be taken from any version, also from before a compaction by Stoker, unless another program rewrote
    /// the rows' fragments since; duplicates count once. Rows that the newest version has deleted already are left as
    /// they are, so a call may be repeated; a call that deletes no further row makes no new version. `attempted` is what
    /// errors name as the purpose of the call. `note` makes the note that the transaction keeps, from the number of rows
    /// that it deletes.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a table or row that does not exist, and for a row that was rewritten since;
    /// [`Error::UnsafeStore`]; storage errors. The table stays as it was.
    pub async fn delete_rows(
        &self,
        name: &TableName,
        row_addrs: &[u64],
        attempted: &str,
        note: &(dyn Fn(u64) -> ChangeNote + Sync),
    ) -> Result<DeletedRows> {
        self.inner.check_atomic_create().await?;
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let table = self.table(name, &SnapshotRef::Latest).await?;
            let rows = table.select(row_addrs).await?;
            let (num_deleted, num_deleted_before) = (rows.num_present(), rows.num_deleted);
            if num_deleted == 0 {
                return Ok(DeletedRows { version: table.version(), num_deleted, num_deleted_before });
            }
            match table.delete(rows, note(num_deleted)).await {
                Ok(version) => match self.is_kept(name, version, row_addrs).await? {
                    true => return Ok(DeletedRows { version, num_deleted, num_deleted_before }),
                    false if attempts_left > 0 => {}
                    false => return Err(lost(name, version)),
                },
                // Another commit may have deleted or moved rows: the next attempt looks for them in the newest version.
                Err(source) if is_conflict(&source) && attempts_left > 0 => {}
                Err(source) => return Err(Error::storage(attempted, source)),
            }
        }
    }

    /// Returns whether the table's history contains a commit that deletes the rows. A commit that stalled while a
    /// cleanup ran can be lost although the store accepted it.
    async fn is_kept(&self, name: &TableName, version: u64, row_addrs: &[u64]) -> Result<bool> {
        let newest = self.table(name, &SnapshotRef::Latest).await?;
        if newest.version() <= version {
            return Ok(newest.version() == version);
        }
        let mut later = newest.version_numbers().await?;
        later.retain(|number| *number > version);
        later.sort_unstable_by(|one, other| other.cmp(one));
        for number in later {
            let lacks_them = match self.at_version(&newest, number, &SnapshotRef::Version(number)).await {
                Ok(table) => table.select(row_addrs).await.is_ok_and(|rows| rows.present.is_empty()),
                Err(error) if error.kind() == ErrorKind::NotFound => false,
                Err(error) => return Err(error),
            };
            if lacks_them {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Table {
    /// Returns how many of these rows this version has deleted; duplicates count once.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a row that never existed, and for one that was rewritten; storage errors.
    pub async fn num_deleted(&self, row_addrs: &[u64]) -> Result<u64> {
        Ok(self.select(row_addrs).await?.num_deleted)
    }

    /// Separates rows by whether this version has them.
    async fn select(&self, row_addrs: &[u64]) -> Result<Selection> {
        let (sorted, num_dropped) = self.followed(row_addrs).await?;
        let (mut found, mut gone) = (Vec::new(), Vec::new());
        for addrs in sorted.chunk_by(|one, next| one >> 32 == next >> 32) {
            match self.dataset().get_fragment((addrs[0] >> 32) as usize) {
                Some(fragment) => {
                    let num_rows = fragment.metadata().physical_rows.unwrap_or(0) as u64;
                    if let Some(beyond) = addrs.iter().find(|addr| **addr & 0xffff_ffff >= num_rows) {
                        return Err(self.no_row(*beyond, format!("; the fragment has {num_rows} rows")));
                    }
                    let offsets: Vec<u32> = addrs.iter().map(|addr| row_offset(*addr)).collect();
                    found.push((fragment, offsets));
                }
                None => gone.extend_from_slice(addrs),
            }
        }
        self.check_deleted(&gone).await?;
        let mut selection =
            Selection { present: Vec::with_capacity(found.len()), num_deleted: gone.len() as u64 + num_dropped };
        let mut parts = stream::iter(found)
            .map(|(fragment, mut offsets)| async move {
                let deletions = caught(fragment.get_deletion_vector())
                    .await
                    .map_err(|source| decode_error(format!("reading the deletions of {}", self.snapshot()), source))?;
                let num_rows = offsets.len();
                if let Some(deletions) = deletions {
                    offsets.retain(|offset| !deletions.contains(*offset));
                }
                let num_deleted = (num_rows - offsets.len()) as u64;
                Ok::<_, Error>((fragment, offsets, num_deleted))
            })
            .buffered(FRAGMENTS_IN_FLIGHT);
        while let Some((fragment, offsets, num_deleted)) = parts.try_next().await? {
            selection.num_deleted += num_deleted;
            if !offsets.is_empty() {
                selection.present.push((fragment, offsets));
            }
        }
        Ok(selection)
    }

    /// Checks that the fragments of these rows, which this version does not have, were dropped because all of their
    /// rows were deleted. Reads the transactions of this version and of those before it, newest first, until each
    /// fragment is explained.
    async fn check_deleted(&self, addrs: &[u64]) -> Result<()> {
        let newest = self.dataset().manifest().max_fragment_id();
        if let Some(addr) = addrs.iter().find(|addr| newest.is_none_or(|newest| **addr >> 32 > newest)) {
            return Err(self.no_row(*addr, "; there is no such fragment".into()));
        }
        let mut unknown: BTreeSet<u64> = addrs.iter().map(|addr| addr >> 32).collect();
        let mut version = self.version();
        while version > 0 && !unknown.is_empty() {
            let Some(transaction) = transaction(self, version).await? else { break };
            version -= 1;
            match transaction.operation {
                // An update in place moves no rows, so the fragments that it drops have none left.
                Operation::Delete { deleted_fragment_ids: dropped, .. }
                | Operation::Update {
                    removed_fragment_ids: dropped,
                    update_mode: Some(UpdateMode::RewriteColumns),
                    ..
                } => unknown.retain(|id| !dropped.contains(id)),
                Operation::Restore { version: restored } => version = version.min(restored),
                Operation::Rewrite { groups, .. }
                    if groups.iter().flat_map(|group| &group.old_fragments).any(|old| unknown.contains(&old.id)) =>
                {
                    break;
                }
                Operation::Overwrite { .. } => break,
                _ => {}
            }
        }
        match addrs.iter().find(|addr| unknown.contains(&(**addr >> 32))) {
            None => Ok(()),
            Some(addr) => {
                let hint = "; its fragment was rewritten or replaced: take the row's address from a newer version";
                Err(self.no_row(*addr, hint.into()))
            }
        }
    }

    /// Commits a version without these rows and returns its number. Lance rebases the commit onto concurrent appends,
    /// and onto concurrent deletions in other fragments. Concurrent changes of the same fragments are a conflict: Lance
    /// would merge both deletions into a deletion file of its own, which has no checksum.
    async fn delete(&self, rows: Selection, note: ChangeNote) -> Result<u64, lance_core::Error> {
        let mut parts = stream::iter(rows.present)
            .map(|(fragment, offsets)| async move {
                let (id, offsets) = (fragment.id() as u64, offsets.into_iter().collect());
                Ok::<_, lance_core::Error>((id, self.with_deletions(&fragment, offsets).boxed().await?))
            })
            .buffered(FRAGMENTS_IN_FLIGHT);
        let (mut updated_fragments, mut deleted_fragment_ids) = (Vec::new(), Vec::new());
        while let Some((id, fragment)) = parts.try_next().await? {
            match fragment {
                Some(fragment) => updated_fragments.push(fragment),
                None => deleted_fragment_ids.push(id),
            }
        }
        let ChangeNote { predicate, properties } = note;
        let operation = Operation::Delete { updated_fragments, deleted_fragment_ids, predicate };
        let transaction = TransactionBuilder::new(self.version(), operation)
            .transaction_properties(Some(Arc::new(properties)))
            .build();
        let inner = &self.lake().inner;
        let commit = CommitBuilder::new(WriteDestination::Dataset(self.dataset().clone()))
            .with_store_params(inner.params.clone())
            .with_session(inner.session.clone());
        let dataset = commit.execute(transaction).boxed().await?;
        Ok(dataset.manifest().version)
    }

    /// The error for a row that this version does not have.
    pub(crate) fn no_row(&self, addr: u64, hint: String) -> Error {
        let (fragment, offset) = (addr >> 32, addr & 0xffff_ffff);
        let what = format!("row {addr} (fragment {fragment}, offset {offset}) of {}", self.snapshot());
        Error::NotFound { what, hint }
    }
}

impl Selection {
    fn num_present(&self) -> u64 {
        self.present.iter().map(|(_, offsets)| offsets.len() as u64).sum()
    }
}
