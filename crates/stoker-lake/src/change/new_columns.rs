//! Writes the values of new columns fragment by fragment, and commits them.
//!
//! Each fragment gets data files of its own for these columns; the other columns are neither read nor written. Old files
//! stay for older versions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, SchemaRef};
use lance_core::datatypes::Field as LanceField;
use lance_table::format::Fragment;
use lance_table::format::overlay::TOMBSTONE_FIELD_ID;
use lance_table::transaction::{Operation, UpdateMode, UpdatedFragmentOffsets};
use roaring::RoaringBitmap;
use stoker_columns::kind_of;
use stoker_types::to_usize;

use super::columns::{NewColumns, Open, OtherRows, Placement};
use super::rewrite::{FragmentColumns, Updates, row_without_values};
use super::{ChangeNote, VALUES_BYTES_MAX, ids_of, replace_columns};
use crate::exact_commit::{ExactChange, IndifferentTo, LostFiles};
use crate::row_id_set::row_offset;
use crate::write::conform;
use crate::{ColumnDraft, CommitKey, Error, Result, Table};

/// The ids that drafts of new columns choose from, and their distance from the ids that are in use. Other columns get the ids
/// right behind those.
const DRAFT_IDS: u64 = 1 << 16;
const DRAFT_ID_DISTANCE: i32 = 1 << 10;

impl NewColumns {
    /// Says what the rows get for which no values are written. The default is [`OtherRows::Refused`]. Filled columns keep
    /// their values in any case.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for a column that can neither be NULL nor zero.
    pub fn with_other_rows(mut self, rows: OtherRows) -> Result<Self> {
        self.other_rows = match rows {
            OtherRows::Refused => None,
            OtherRows::Null => Some(row_without_values(self.table.name(), &self.schema)?),
        };
        Ok(self)
    }

    /// Makes the columns ones whose finished fragments are kept as drafts in a journal, for another attempt. The values are
    /// computed from these columns; `None` means that they may depend on all columns. The new columns get ids from
    /// `first_id` on ([`Table::id_for_drafts`]), so that drafts have the same ids in all attempts, although others add
    /// columns meanwhile. If others have these ids, no draft fits.
    #[must_use]
    pub fn with_drafts(mut self, inputs: Option<&[String]>, first_id: i32) -> Self {
        let schema = self.table.dataset().schema();
        let ids = |names: &[String]| {
            let fields = schema.fields.iter().filter(|field| names.contains(&field.name));
            fields.flat_map(ids_of).collect::<HashSet<i32>>()
        };
        self.inputs = inputs.map(ids);
        if let Placement::Filled = self.placement {
            if let Some(inputs) = &mut self.inputs {
                inputs.extend(self.fields.fields.iter().flat_map(ids_of));
            }
        } else {
            self.move_ids(first_id);
        }
        self.lost_files = LostFiles::Keep;
        self
    }

    /// Gives the new columns ids from `first_id` on, unless one of these is in use.
    fn move_ids(&mut self, first_id: i32) {
        let own = self.field_ids();
        let Some(first) = own.iter().min().copied() else { return };
        let moved: HashMap<i32, i32> =
            own.iter().filter_map(|id| Some((*id, (id - first).checked_add(first_id)?))).collect();
        if moved.len() < own.len() || moved.values().any(|id| self.used_ids.contains(id)) {
            return;
        }
        for fields in [&mut self.fields.fields, &mut self.all.fields] {
            fields.iter_mut().for_each(|field| change_ids(field, &moved));
        }
    }

    /// The table, at the version whose rows get values.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Whether a fragment has all of its values.
    pub fn is_finished(&self, fragment: u32) -> bool {
        self.finished.contains_key(&u64::from(fragment))
    }

    /// Writes the values of rows: those of row `n` of `values` for the row at the `n`th address. Rows come by ascending
    /// address within a fragment, and fragments one after another. All new columns must be there; they are matched by
    /// name.
    ///
    /// # Errors
    /// [`Error::InvalidData`], which names the column and the row; [`Error::NotFound`] for a row that does not exist;
    /// storage errors. After an error, the columns cannot be committed.
    pub async fn write(&mut self, row_addrs: &[u64], values: &RecordBatch) -> Result<()> {
        if row_addrs.len() != values.num_rows() {
            let reason = format!("{} rows were named, but {} have values", row_addrs.len(), values.num_rows());
            return Err(Error::InvalidData { table: self.table.name().to_string(), reason });
        }
        let values = conform(self.table.name(), &self.schema, values, self.num_rows)?;
        let mut start = 0;
        for addrs in row_addrs.chunk_by(|one, next| one >> 32 == next >> 32) {
            let mut open = self.opened(addrs[0] >> 32).await?;
            let part = values.slice(start, addrs.len());
            let written = match &mut open {
                Open::Files(files) => {
                    let offsets: Vec<u32> = addrs.iter().map(|addr| row_offset(*addr)).collect();
                    files.write(&offsets, &part).await
                }
                Open::Values { updates, .. } => updates.add(&self.table, addrs, &part),
            };
            self.open = Some(open);
            written?;
            start += addrs.len();
        }
        self.num_rows += row_addrs.len() as u64;
        Ok(())
    }

    /// Completes a fragment, which may be the one that is being written, and returns it as a draft. Its files stay, whether
    /// or not the columns are committed.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for rows without values, unless [`OtherRows`] says what they get; storage errors.
    pub async fn end_fragment(&mut self, fragment: u32) -> Result<ColumnDraft> {
        let id = u64::from(fragment);
        if self.open.as_ref().is_some_and(|open| open.fragment() == id) {
            self.finish_open().await?;
        } else if !self.finished.contains_key(&id) {
            let files = match self.needs_files() {
                true => {
                    self.open = Some(self.opened(id).await?);
                    self.finish_open().await?;
                    self.finished.remove(&id).unwrap_or_default()
                }
                false => Vec::new(),
            };
            self.finished.insert(id, files);
        }
        let files = self.finished.get(&id).cloned().unwrap_or_default();
        self.written.forget(files.iter().map(|file| file.path.as_str()));
        let source = self.source_of(fragment)?;
        Ok(ColumnDraft { fragment: id, fields: self.field_ids(), source, files })
    }

    /// Takes over a draft, whose fragment then has its values. Returns whether it fits: not if the fragment is gone, or if
    /// the values from which it was computed have changed since, or if others have the
    /// ids of the columns.
    pub fn adopt(&mut self, draft: ColumnDraft) -> bool {
        let source = u32::try_from(draft.fragment).ok().and_then(|fragment| self.source_of(fragment).ok());
        let fits = source.is_some_and(|source| source == draft.source) && draft.fields == self.field_ids();
        if fits {
            self.finished.insert(draft.fragment, draft.files);
        }
        fits
    }

    /// Commits the columns. Returns the new version. With a key, an earlier commit of the same key is looked up first, and
    /// its version returned.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for rows without values; [`Error::Conflict`] if others changed rows or columns meanwhile;
    /// storage errors. The table stays as it was. [`Error::OutcomeUnknown`] when nothing tells whether the commit took
    /// effect.
    pub async fn commit(mut self, key: Option<CommitKey<'_>>, note: &ChangeNote) -> Result<u64> {
        let committed = self.try_commit(key, note).await;
        self.abort().await;
        committed
    }

    /// Discards the columns: their files are removed as far as the store allows, except those of drafts.
    pub async fn abort(self) {
        if let Some(Open::Files(open)) = self.open {
            open.abort().await;
        }
        self.table.lake().remove_data_files(self.table.name(), self.written.take()).await;
    }

    /// Takes the open fragment, or opens it.
    async fn opened(&mut self, id: u64) -> Result<Open> {
        if self.open.as_ref().is_some_and(|open| open.fragment() != id) {
            self.finish_open().await?;
        }
        if let Some(open) = self.open.take() {
            return Ok(open);
        }
        if self.finished.contains_key(&id) {
            let reason = format!("values of fragment {id} came after those of another one: give its rows together");
            return Err(Error::InvalidData { table: self.table.name().to_string(), reason });
        }
        if let Placement::Filled = self.placement {
            return Ok(Open::Values { fragment: id, updates: Updates::new(VALUES_BYTES_MAX) });
        }
        let Some(fragment) = self.table.dataset().get_fragment(to_usize(id)) else {
            return Err(self.table.no_row(id << 32, "; there is no such fragment".into()));
        };
        let (table, schema, page_bytes) = (&self.table, &self.schema, self.page_bytes);
        let files = FragmentColumns::create(table, &fragment, schema, &self.fields, page_bytes, &self.written).await?;
        Ok(Open::Files(match &self.other_rows {
            Some(row) => files.with_other_rows(row.clone()),
            None => files,
        }))
    }

    async fn finish_open(&mut self) -> Result<()> {
        match self.open.take() {
            None => {}
            Some(Open::Files(open)) => {
                let id = open.fragment;
                self.finished.insert(id, open.finish().await?);
            }
            Some(Open::Values { fragment: id, mut updates }) => {
                updates.sort(&self.table)?;
                let Some(fragment) = self.table.dataset().get_fragment(to_usize(id)) else {
                    return Err(self.table.no_row(id << 32, "; there is no such fragment".into()));
                };
                let files =
                    self.table.rewrite(&fragment, &updates, updates.rows(), self.page_bytes, &self.written).await?;
                self.finished.insert(id, files);
            }
        }
        Ok(())
    }

    /// Whether a fragment without values needs files: not where a missing file means NULL, or that rows keep their values.
    fn needs_files(&self) -> bool {
        !matches!(self.placement, Placement::Filled)
            && self
                .schema
                .fields()
                .iter()
                .any(|field| !field.is_nullable() || kind_of(field).storage(field).refuses_nulls)
    }

    async fn try_commit(&mut self, key: Option<CommitKey<'_>>, note: &ChangeNote) -> Result<u64> {
        self.finish_open().await?;
        if self.other_rows.is_some() && self.needs_files() {
            for fragment in self.table.fragments().into_iter().filter(|fragment| fragment.num_rows > 0) {
                if !self.is_finished(fragment.id) {
                    self.open = Some(self.opened(u64::from(fragment.id)).await?);
                    self.finish_open().await?;
                }
            }
        }
        self.check_complete()?;
        self.written.take();
        let files = self.finished.values().flatten().map(|file| file.path.clone()).collect();
        let change = ExactChange {
            base: &self.table,
            operation: self.operation(),
            indifferent_to: IndifferentTo::Nothing,
            files,
            lost_files: self.lost_files,
            key,
            properties: note.properties.clone(),
        };
        let lake = self.table.lake().clone();
        Ok(lake.commit_exactly(change).await?.version)
    }

    fn operation(&self) -> Operation {
        let fragments = self.table.dataset().fragments().iter();
        if let Placement::Filled = self.placement {
            let ids: HashSet<i32> = self.fields.fields.iter().flat_map(ids_of).collect();
            let (mut updated_fragments, mut offsets) = (Vec::new(), HashMap::new());
            for fragment in fragments {
                let Some(files) = self.finished.get(&fragment.id).filter(|files| !files.is_empty()) else { continue };
                let mut updated = fragment.clone();
                replace_columns(&mut updated, &ids, files.clone());
                let mut rows = RoaringBitmap::new();
                rows.insert_range(0..u32::try_from(fragment.physical_rows.unwrap_or(0)).unwrap_or(u32::MAX));
                offsets.insert(fragment.id, rows);
                updated_fragments.push(updated);
            }
            let mut fields_modified: Vec<u32> = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
            fields_modified.sort_unstable();
            return Operation::Update {
                removed_fragment_ids: Vec::new(),
                updated_fragments,
                new_fragments: Vec::new(),
                // Indexes of these fields do not cover the updated fragments any more.
                fields_modified,
                compacted_sstables: Vec::new(),
                fields_for_preserving_frag_bitmap: Vec::new(),
                update_mode: Some(UpdateMode::RewriteColumns),
                inserted_rows_filter: None,
                updated_fragment_offsets: Some(UpdatedFragmentOffsets(offsets)),
            };
        }
        Operation::Merge {
            fragments: fragments.map(|fragment| self.with_files(fragment)).collect(),
            schema: self.all.clone(),
            preserves_nullability: self.schema.fields().iter().all(|field| field.is_nullable()),
        }
    }

    /// A fragment with the files of the new columns, and without files that only had columns which are replaced.
    fn with_files(&self, fragment: &Fragment) -> Fragment {
        let mut fragment = fragment.clone();
        let Some(files) = self.finished.get(&fragment.id).filter(|files| !files.is_empty()) else { return fragment };
        if let Placement::Replaced(old) = &self.placement {
            let is_needed = |id: &i32| *id != TOMBSTONE_FIELD_ID && !old.contains(id);
            fragment.files.retain(|file| file.fields.iter().any(is_needed));
        }
        fragment.files.extend(files.iter().cloned());
        fragment
    }

    /// Checks that all rows have values, or that none has and all may be null.
    fn check_complete(&self) -> Result<()> {
        if self.other_rows.is_some() || matches!(self.placement, Placement::Filled) {
            return Ok(());
        }
        let fail = |reason: String| Err(Error::InvalidData { table: self.table.name().to_string(), reason });
        let fragments = self.table.fragments();
        let mut with_rows = fragments.iter().filter(|fragment| fragment.num_rows > 0);
        if self.finished.is_empty() {
            let refuses = |field: &&Arc<Field>| !field.is_nullable() || kind_of(field).storage(field).refuses_nulls;
            return match (with_rows.next(), self.schema.fields().iter().find(refuses)) {
                (Some(_), Some(field)) => {
                    fail(format!("column {} must not have nulls, but the rows have no values", field.name()))
                }
                _ => Ok(()),
            };
        }
        match with_rows.find(|fragment| !self.finished.contains_key(&u64::from(fragment.id))) {
            None => Ok(()),
            Some(fragment) => fail(format!("the rows of fragment {} have no values for the new columns", fragment.id)),
        }
    }

    /// The ids of the columns and of their nested fields, in order.
    fn field_ids(&self) -> Vec<i32> {
        self.fields.fields.iter().flat_map(ids_of).collect()
    }

    /// What the values of a fragment depend on: its rows, deleted or not, and the files with the columns from which the
    /// values are computed. Two versions in which it is equal have the same values.
    ///
    /// # Errors
    /// [`Error::NotFound`] for a fragment that does not exist.
    pub fn source_of(&self, fragment: u32) -> Result<String> {
        let id = u64::from(fragment);
        let found = self.table.dataset().fragments().iter().find(|fragment| fragment.id == id);
        let Some(fragment) = found else {
            return Err(self.table.no_row(id << 32, "; there is no such fragment".into()));
        };
        let is_input = |id: &i32| self.inputs.as_ref().is_none_or(|inputs| inputs.contains(id));
        let mut files: Vec<String> = Vec::new();
        for file in fragment.files.iter().filter(|file| file.fields.iter().any(is_input)) {
            let columns = file.fields.iter().zip(file.column_indices.iter()).filter(|(id, _)| is_input(id));
            let columns: Vec<String> = columns.map(|(id, column)| format!("{id}@{column}")).collect();
            files.push(format!("{:?} {} {}", file.base_id, file.path, columns.join(",")));
        }
        files.sort_unstable();
        let rows = fragment.physical_rows.unwrap_or(0);
        Ok(format!("{rows} rows; {} overlays; {}", fragment.overlays.len(), files.join("; ")))
    }
}

impl Table {
    /// Returns an id for the first one of new columns whose drafts outlast changes of others: one that columns which others add
    /// are not going to get. `random` is any number.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn id_for_drafts(&self, random: u64) -> Result<i32> {
        let last = self.used_field_ids().await?.into_iter().max().unwrap_or(0);
        let distance = DRAFT_ID_DISTANCE + (random % DRAFT_IDS) as i32;
        Ok(last.checked_add(distance).unwrap_or(last))
    }

    /// The ids of all columns of the table, of those whose values are still in its files, and of those that its indexes name: an
    /// index whose column is gone, of another writer, must not become one of a new column with the same id.
    pub(super) async fn used_field_ids(&self) -> Result<HashSet<i32>> {
        let mut ids: HashSet<i32> = self.dataset().schema().fields.iter().flat_map(ids_of).collect();
        for fragment in self.dataset().fragments().iter() {
            ids.extend(fragment.files.iter().flat_map(|file| file.fields.iter().copied()));
        }
        ids.extend(self.own_indexes().await?.iter().flat_map(|index| index.fields.iter().copied()));
        Ok(ids)
    }
}

/// Gives a field and the fields in it new ids.
fn change_ids(field: &mut LanceField, ids: &HashMap<i32, i32>) {
    for id in [&mut field.id, &mut field.parent_id] {
        *id = ids.get(id).copied().unwrap_or(*id);
    }
    field.children.iter_mut().for_each(|child| change_ids(child, ids));
}

impl Open {
    fn fragment(&self) -> u64 {
        match self {
            Self::Files(files) => files.fragment,
            Self::Values { fragment, .. } => *fragment,
        }
    }
}
