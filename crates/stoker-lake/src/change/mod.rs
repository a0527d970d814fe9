//! Atomic changes of the rows and columns of a table.
//!
//! ```text
//! delete(addresses) ──► deletion files ────────────────────────┐
//! update(addresses, values) ──► new data files of fragments ───┼─► one commit, exactly after the version by which the
//! insert(rows) ──► TableWriter ──► new fragments ──────────────┘   rows were chosen
//! ```
//!
//! Updated rows keep their addresses: each fragment of theirs gets new data files with the updated columns, and the
//! other columns are neither read nor written. All files are those of the table writer, so a heavy column keeps its own
//! files, pages and checksums.
//!
//! A change holds for the version by which its rows were chosen. Of the commits that came after that version, those of
//! indexes, and by [`Isolation::Snapshot`] those that only add rows, do not matter; after others, the change fails with
//! [`Error::Conflict`], and the caller computes it again on the newest version.

mod columns;
mod new_columns;
mod rewrite;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use arrow_array::{RecordBatch, new_null_array};
use arrow_schema::{FieldRef, Schema as ArrowSchema};
use futures::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use lance::dataset::fragment::FileFragment;
use lance_core::datatypes::Field;
use lance_table::format::overlay::TOMBSTONE_FIELD_ID;
use lance_table::format::{DataFile, Fragment};
use lance_table::transaction::{Operation, UpdateMode, UpdatedFragmentOffsets};
use roaring::{RoaringBitmap, RoaringTreemap};
use stoker_columns::kind_of;
use stoker_types::{SnapshotRef, TableName, to_usize};

pub use self::columns::{NewColumns, OtherRows};
use self::rewrite::{NewRow, Updates};
pub(crate) use self::rewrite::{WrittenFiles, batch_rows, bytes_of};
use crate::commit::pause;
use crate::damage::{caught, decode_error};
use crate::exact_commit::{CommittedChange, ExactChange, IndifferentTo, LostFiles};
use crate::row_id_set::row_offset;
use crate::{CommitKey, Error, FragmentDraft, LakeStore, Result, Table, TableWriter, WriteOptions};

/// The most bytes of new values that a change keeps in memory, unless it says otherwise.
const VALUES_BYTES_MAX: u64 = 1 << 30;

/// The most attempts to remove all rows while others commit.
const ATTEMPTS_MAX: u32 = 50;

/// The number of fragments whose deletions are read or written at the same time.
const FRAGMENTS_IN_FLIGHT: usize = 16;

/// The number of fragments whose light columns are written at the same time. Fragments with heavy columns are written
/// one by one.
const LIGHT_FRAGMENTS_IN_FLIGHT: usize = 4;

/// The keys of the transaction properties with the number of rows that a change deleted, updated and inserted.
const COUNT_PROPERTIES: [&str; 3] = ["stoker.rows_deleted", "stoker.rows_updated", "stoker.rows_inserted"];

/// The result of a change of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// The version that has the change: a new one, or that of the table if nothing was to be changed.
    pub version: u64,
    /// The number of rows that were deleted.
    pub num_deleted: u64,
    /// The number of rows that were updated.
    pub num_updated: u64,
    /// The number of rows that were inserted.
    pub num_inserted: u64,
}

/// What the transaction of a change says about it, beside the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangeNote {
    /// The predicate that Lance's tools show for a deletion: which rows it deletes, for people.
    pub predicate: String,
    /// The properties of the transaction. Keys that begin with `stoker.` are Stoker's.
    pub properties: HashMap<String, String>,
}

/// Which commits of others are a conflict, if they come after the version by which the rows of a change were chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Commits that change or delete existing rows, of which the first one wins. New rows are no conflict. A change
    /// that only inserts has no conflict with any commit of rows.
    #[default]
    Snapshot,
    /// All commits of rows, also those that add rows: for changes that depend on which rows there are, such as a
    /// `MERGE` that inserts what is missing, and an `INSERT … SELECT` from the same table.
    Serializable,
}

/// A change of the rows of a table, which is computed on one version and committed as one version.
///
/// Addresses of deleted rows, as bitmaps, and new values of updated rows stay in memory until the commit; inserted rows are written
/// at once. Nothing is visible before the commit.
pub struct RowChange {
    table: Table,
    options: WriteOptions,
    isolation: Isolation,
    deleted: RoaringTreemap,
    updates: Updates,
    inserted: Option<TableWriter>,
    num_inserted: u64,
}

/// A fragment, and what a change does with its rows.
struct FragmentChange {
    fragment: FileFragment,
    /// The offsets of the rows that are deleted.
    deleted: RoaringBitmap,
    /// The rows that are updated: a range of [`Updates::rows`].
    updated: Range<usize>,
}

impl LakeStore {
    /// Begins a change of rows. `table` is pinned at the version by which the rows are chosen.
    ///
    /// # Errors
    /// [`Error::UnsafeStore`]; storage errors.
    pub async fn change(&self, table: &Table, options: WriteOptions) -> Result<RowChange> {
        self.inner.check_atomic_create().await?;
        Ok(RowChange {
            table: table.clone(),
            options,
            isolation: Isolation::default(),
            deleted: RoaringTreemap::new(),
            updates: Updates::new(VALUES_BYTES_MAX),
            inserted: None,
            num_inserted: 0,
        })
    }

    /// Removes all rows of a table, also those that others add meanwhile, by a version without rows. Earlier versions
    /// keep their rows, and the columns, tags and indexes of the table stay.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a table that does not exist; [`Error::UnsafeStore`]; [`Error::Conflict`] if others
    /// commit before each of 50 attempts; storage errors.
    pub async fn truncate(&self, name: &TableName, note: &ChangeNote) -> Result<Changed> {
        let mut attempts_left = ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let table = self.table(name, &SnapshotRef::Latest).await?;
            let mut changed = Changed { version: table.version(), num_deleted: table.num_rows(), ..Changed::default() };
            let deleted_fragment_ids: Vec<u64> = table.dataset().fragments().iter().map(|part| part.id).collect();
            if deleted_fragment_ids.is_empty() {
                return Ok(changed);
            }
            let predicate = note.predicate.clone();
            let change = ExactChange {
                base: &table,
                operation: Operation::Delete { updated_fragments: Vec::new(), deleted_fragment_ids, predicate },
                indifferent_to: IndifferentTo::Nothing,
                files: Vec::new(),
                lost_files: LostFiles::Remove,
                key: None,
                properties: changed.properties(note),
            };
            match self.commit_exactly(change).await {
                Ok(committed) => {
                    changed.version = committed.version;
                    return Ok(changed);
                }
                Err(Error::Conflict { .. }) if attempts_left > 0 => {
                    tokio::time::sleep(pause(ATTEMPTS_MAX - attempts_left)).await;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl RowChange {
    /// Returns the same change with another isolation; the default is [`Isolation::Snapshot`].
    #[must_use]
    pub fn with_isolation(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }

    /// Returns the same change with another limit on the bytes of new values in memory; the default is 1 GiB.
    #[must_use]
    pub fn with_values_bytes_max(mut self, bytes_max: u64) -> Self {
        self.updates.bytes_max = bytes_max;
        self
    }

    /// Deletes the rows at these addresses. Duplicates count once, and rows that the version does not have any more
    /// count nothing.
    pub fn delete(&mut self, row_addrs: &[u64]) {
        self.deleted.extend(row_addrs);
    }

    /// Gives the rows at these addresses new values: those of row `n` of `values` to the row at the `n`th address.
    /// Columns are matched by name; columns that `values` does not have stay as they are. All calls must name the same
    /// columns.
    ///
    /// # Errors
    /// [`Error::InvalidData`], which names the column and the row; [`Error::ChangeTooLarge`] when all new values
    /// together need more memory than the limit.
    pub fn update(&mut self, row_addrs: &[u64], values: &RecordBatch) -> Result<()> {
        if row_addrs.is_empty() && values.num_rows() == 0 {
            return Ok(());
        }
        self.updates.add(&self.table, row_addrs, values)
    }

    /// Inserts rows. Columns are matched by name; missing columns become NULL.
    ///
    /// # Errors
    /// [`Error::InvalidData`], which names the column and, where it has one, the row; storage errors.
    pub async fn insert(&mut self, rows: &RecordBatch) -> Result<()> {
        let rows = with_nulls(&self.table, rows)?;
        let writer = match &mut self.inserted {
            Some(writer) => writer,
            none => none.insert(self.table.writer(self.options.clone())?),
        };
        writer.write(&rows).await?;
        self.num_inserted += rows.num_rows() as u64;
        Ok(())
    }

    /// Commits the change as one version: readers see all of it or nothing. A change without rows makes no version.
    ///
    /// With a key, an earlier commit of the same key is looked up first. If there is one, its version and its numbers
    /// of rows are returned, and nothing is committed.
    ///
    /// # Errors
    /// [`Error::Conflict`] if commits came in between that matter; [`Error::NotFound`] for a row that does not exist;
    /// [`Error::InvalidData`] for a row that has new values twice, or that is deleted and updated;
    /// [`Error::Overtaken`] as [`CommitKey::chosen_at`] says; `DataCorrupt` for old values that differ from their
    /// checksums; storage errors: the table stays as it was. [`Error::OutcomeUnknown`] when nothing tells whether the
    /// commit took effect.
    pub async fn commit(mut self, key: Option<CommitKey<'_>>, note: &ChangeNote) -> Result<Changed> {
        let written = WrittenFiles::default();
        let changed = self.try_commit(key, note, &written).await;
        // The commit took over the files that it names.
        let lake = self.table.lake().clone();
        lake.remove_data_files(self.table.name(), written.take()).await;
        self.abort().await;
        changed
    }

    /// Discards the change: files of inserted rows are removed as far as the store allows.
    pub async fn abort(mut self) {
        let Some(writer) = self.inserted.take() else { return };
        let files = writer.files();
        writer.abort().await;
        let lake = self.table.lake().clone();
        lake.remove_data_files(self.table.name(), files).await;
    }

    async fn try_commit(
        &mut self,
        key: Option<CommitKey<'_>>,
        note: &ChangeNote,
        written: &WrittenFiles,
    ) -> Result<Changed> {
        let lake = self.table.lake().clone();
        let indifferent_to = self.indifferent_to();
        if let Some(earlier) = lake.check_change(&self.table, indifferent_to, key).await? {
            return Ok(Changed::of(&earlier));
        }
        self.updates.sort(&self.table)?;
        let deleted = std::mem::take(&mut self.deleted);
        let changes = self.table.fragment_changes(&deleted, &self.updates).await?;
        let changed = Changed {
            version: self.table.version(),
            num_deleted: changes.iter().map(|change| change.deleted.len()).sum(),
            num_updated: self.updates.rows().len() as u64,
            num_inserted: self.num_inserted,
        };
        let new_fragments = self.finish_inserts(written).await?;
        let fragments = self.table.changed_fragments(changes, &self.updates, self.options.page_bytes, written).await?;
        let Some(operation) = operation(&self.table, &self.updates, fragments, new_fragments, note) else {
            return Ok(changed);
        };
        let (files, properties) = (written.take(), changed.properties(note));
        let lost_files = LostFiles::Remove;
        let change = ExactChange { base: &self.table, operation, indifferent_to, files, lost_files, key, properties };
        Ok(Changed::of(&lake.commit_exactly(change).await?))
    }

    fn indifferent_to(&self) -> IndifferentTo {
        let only_inserts = self.deleted.is_empty() && self.updates.rows().is_empty();
        match (self.isolation, only_inserts) {
            (Isolation::Serializable, _) => IndifferentTo::Nothing,
            (Isolation::Snapshot, true) => IndifferentTo::Rows,
            (Isolation::Snapshot, false) => IndifferentTo::NewRows,
        }
    }

    /// Closes the files of the inserted rows.
    async fn finish_inserts(&mut self, written: &WrittenFiles) -> Result<Vec<Fragment>> {
        let Some(writer) = self.inserted.take() else { return Ok(Vec::new()) };
        written.add(writer.files());
        let drafts = writer.finish().await?;
        written.add(drafts.iter().flat_map(FragmentDraft::files));
        Ok(drafts.into_iter().map(FragmentDraft::into_fragment).collect())
    }
}

impl Changed {
    /// The properties of the transaction that makes this change.
    fn properties(&self, note: &ChangeNote) -> HashMap<String, String> {
        let counts = [self.num_deleted, self.num_updated, self.num_inserted];
        let counts = COUNT_PROPERTIES.iter().zip(counts).map(|(key, count)| (key.to_string(), count.to_string()));
        note.properties.clone().into_iter().chain(counts).collect()
    }

    fn of(committed: &CommittedChange) -> Self {
        let count = |key: &str| committed.properties.get(key).and_then(|count| count.parse().ok()).unwrap_or(0);
        let [num_deleted, num_updated, num_inserted] = COUNT_PROPERTIES.map(count);
        Self { version: committed.version, num_deleted, num_updated, num_inserted }
    }
}

impl Table {
    /// Divides the rows of a change by fragment, and checks that they exist.
    async fn fragment_changes(&self, deleted: &RoaringTreemap, updates: &Updates) -> Result<Vec<FragmentChange>> {
        let mut by_fragment: BTreeMap<u64, (RoaringBitmap, Range<usize>)> = BTreeMap::new();
        for (id, offsets) in deleted.bitmaps() {
            by_fragment.entry(u64::from(id)).or_default().0 = offsets.clone();
        }
        let mut start = 0;
        for rows in updates.rows().chunk_by(|one, next| one.row_addr >> 32 == next.row_addr >> 32) {
            by_fragment.entry(rows[0].row_addr >> 32).or_default().1 = start..start + rows.len();
            start += rows.len();
        }
        let rows = updates.rows();
        let checks = stream::iter(by_fragment).map(|(id, (deleted, updated))| {
            async move { self.fragment_change(id, deleted, updated, rows).await }.boxed()
        });
        let mut changes: Vec<FragmentChange> = checks.buffered(FRAGMENTS_IN_FLIGHT).try_collect().await?;
        changes.retain(|change| !change.deleted.is_empty() || !change.updated.is_empty());
        Ok(changes)
    }

    async fn fragment_change(
        &self,
        id: u64,
        deleted: RoaringBitmap,
        updated: Range<usize>,
        rows: &[NewRow],
    ) -> Result<FragmentChange> {
        let new = &rows[updated.clone()];
        let Some(fragment) = self.dataset().get_fragment(to_usize(id)) else {
            let deleted = deleted.min().map(|offset| id << 32 | u64::from(offset));
            let addr = deleted.or(new.first().map(|row| row.row_addr)).unwrap_or(id << 32);
            return Err(self.no_row(addr, "; there is no such fragment".into()));
        };
        if !fragment.metadata().overlays.is_empty() && new.is_empty() && !rows.is_empty() {
            let reason = format!(
                "fragment {id} has overlays of another writer, which a commit of deletions and updates would lose: \
                 compact the table with Lance, or delete the rows first"
            );
            return Err(Error::InvalidRequest { attempted: format!("changing table {}", self.snapshot()), reason });
        }
        let attempted = || format!("reading the deletions of {}", self.snapshot());
        let gone = caught(fragment.get_deletion_vector()).await;
        let gone = gone.map_err(|source| decode_error(attempted(), source))?;
        let is_gone = |offset: u32| gone.as_ref().is_some_and(|gone| gone.contains(offset));
        let num_rows = fragment.metadata().physical_rows.unwrap_or(0) as u64;
        let deleted_addrs = deleted.iter().map(|offset| id << 32 | u64::from(offset));
        let mut all = deleted_addrs.chain(new.iter().map(|row| row.row_addr));
        if let Some(beyond) = all.find(|addr| addr & 0xffff_ffff >= num_rows) {
            return Err(self.no_row(beyond, format!("; the fragment has {num_rows} rows")));
        }
        for row in new {
            let offset = row_offset(row.row_addr);
            if is_gone(offset) {
                return Err(self.no_row(row.row_addr, "; it was deleted".into()));
            }
            if deleted.contains(offset) {
                let reason = format!("{} is deleted and updated by the same change", self.row_name(row.row_addr));
                return Err(Error::InvalidData { table: self.name().to_string(), reason });
            }
        }
        let deleted = deleted.into_iter().filter(|offset| !is_gone(*offset)).collect();
        Ok(FragmentChange { fragment, deleted, updated })
    }

    /// Writes the deletion files and the data files of the changed fragments. Returns the metadata of each fragment;
    /// `None` for one without rows.
    async fn changed_fragments(
        &self,
        changes: Vec<FragmentChange>,
        updates: &Updates,
        page_bytes: usize,
        written: &WrittenFiles,
    ) -> Result<Vec<(u64, Option<Fragment>)>> {
        let at_once = match updates.rows().is_empty() {
            true => FRAGMENTS_IN_FLIGHT,
            false if updates.has_heavy() => 1,
            false => LIGHT_FRAGMENTS_IN_FLIGHT,
        };
        let changed = stream::iter(changes).map(|change| {
            async move {
                let id = change.fragment.id() as u64;
                Ok::<_, Error>((id, self.changed_fragment(change, updates, page_bytes, written).await?))
            }
            .boxed()
        });
        changed.buffered(at_once).try_collect().await
    }

    async fn changed_fragment(
        &self,
        change: FragmentChange,
        updates: &Updates,
        page_bytes: usize,
        written: &WrittenFiles,
    ) -> Result<Option<Fragment>> {
        let FragmentChange { fragment, deleted, updated } = change;
        let mut metadata = fragment.metadata().clone();
        if !deleted.is_empty() {
            let marked = self.with_deletions(&fragment, deleted).boxed().await;
            let marked = marked.map_err(|source| Error::storage(format!("changing table {}", self.snapshot()), source));
            match marked? {
                Some(marked) => metadata = marked,
                None => return Ok(None),
            }
        }
        let rows = &updates.rows()[updated];
        if !rows.is_empty() {
            let files = self.rewrite(&fragment, updates, rows, page_bytes, written).await?;
            replace_columns(&mut metadata, &self.updated_ids(updates), files);
        }
        Ok(Some(metadata))
    }

    /// The ids of the updated columns, with those of their nested fields.
    fn updated_ids(&self, updates: &Updates) -> HashSet<i32> {
        let fields = self.dataset().schema().fields.iter();
        let fields = fields.filter(|field| updates.schema().field_with_name(&field.name).is_ok());
        fields.flat_map(ids_of).collect()
    }
}

/// Returns the operation that makes a change; `None` for a change without rows.
fn operation(
    table: &Table,
    updates: &Updates,
    fragments: Vec<(u64, Option<Fragment>)>,
    new_fragments: Vec<Fragment>,
    note: &ChangeNote,
) -> Option<Operation> {
    if fragments.is_empty() {
        return (!new_fragments.is_empty()).then_some(Operation::Append { fragments: new_fragments });
    }
    let (mut updated_fragments, mut removed_fragment_ids) = (Vec::new(), Vec::new());
    for (id, fragment) in fragments {
        match fragment {
            Some(fragment) => updated_fragments.push(fragment),
            None => removed_fragment_ids.push(id),
        }
    }
    if updates.rows().is_empty() && new_fragments.is_empty() {
        let (deleted_fragment_ids, predicate) = (removed_fragment_ids, note.predicate.clone());
        return Some(Operation::Delete { updated_fragments, deleted_fragment_ids, predicate });
    }
    let mut offsets: HashMap<u64, RoaringBitmap> = HashMap::new();
    for rows in updates.rows().chunk_by(|one, next| one.row_addr >> 32 == next.row_addr >> 32) {
        let of_fragment = rows.iter().map(|row| row_offset(row.row_addr)).collect();
        offsets.insert(rows[0].row_addr >> 32, of_fragment);
    }
    let ids = table.updated_ids(updates).into_iter();
    let mut fields_modified: Vec<u32> = ids.filter_map(|id| u32::try_from(id).ok()).collect();
    fields_modified.sort_unstable();
    Some(Operation::Update {
        removed_fragment_ids,
        updated_fragments,
        new_fragments,
        // Indexes of these fields do not cover the updated fragments any more.
        fields_modified,
        compacted_sstables: Vec::new(),
        fields_for_preserving_frag_bitmap: Vec::new(),
        update_mode: Some(UpdateMode::RewriteColumns),
        inserted_rows_filter: None,
        updated_fragment_offsets: Some(UpdatedFragmentOffsets(offsets)),
    })
}

/// Replaces the columns with these ids by those in new files, as Lance does when it updates columns in place.
fn replace_columns(fragment: &mut Fragment, ids: &HashSet<i32>, files: Vec<DataFile>) {
    let replaced = |id: &i32| if ids.contains(id) { TOMBSTONE_FIELD_ID } else { *id };
    for file in &mut fragment.files {
        file.fields = file.fields.iter().map(replaced).collect();
    }
    fragment.files.retain(|file| file.fields.iter().any(|id| *id != TOMBSTONE_FIELD_ID));
    fragment.files.extend(files);
}

/// Returns the ids of a field and of all fields in it.
fn ids_of(field: &Field) -> Vec<i32> {
    let nested = field.children.iter().flat_map(ids_of);
    std::iter::once(field.id).chain(nested).collect()
}

/// Returns rows with all columns of the table: those that are missing are null.
fn with_nulls(table: &Table, rows: &RecordBatch) -> Result<RecordBatch> {
    let fail = |reason: String| Error::InvalidData { table: table.name().to_string(), reason };
    let mut fields: Vec<FieldRef> = rows.schema().fields().to_vec();
    let mut columns = rows.columns().to_vec();
    for field in table.schema().fields() {
        if rows.column_by_name(field.name()).is_some() {
            continue;
        }
        if !field.is_nullable() || kind_of(field).storage(field).refuses_nulls {
            return Err(fail(format!("column {} has no value, and it must not have nulls", field.name())));
        }
        columns.push(new_null_array(field.data_type(), rows.num_rows()));
        fields.push(field.clone());
    }
    RecordBatch::try_new(ArrowSchema::new(fields).into(), columns).map_err(|source| fail(source.to_string()))
}
