//! Changes of the columns of a table, without a rewrite of the others: columns get values, are dropped and renamed.
//!
//! ```text
//! add_columns ──────┐                                       ┌─ commit ──► a new version
//! replace_columns ──┼─► NewColumns ──write──► data files ───┤
//! fill_columns ─────┘                                       └─ end_fragment ──► ColumnDraft ──► a journal ──► adopt
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use lance_core::datatypes::{Field as LanceField, Schema};
use lance_table::format::DataFile;
use lance_table::transaction::Operation;
use stoker_columns::{LOSSY_KEY, index_columns};
use stoker_pages::with_media_uncompressed;
use stoker_types::TableName;

use super::rewrite::{FragmentColumns, Updates, WrittenFiles, lance_columns};
use super::{ChangeNote, ids_of};
use crate::exact_commit::{ExactChange, IndifferentTo, LostFiles};
use crate::write::{check_names, larger_losses};
use crate::{Error, FragmentDraft, LakeStore, Result, Table, WriteOptions};

/// The most attempts to note the errors of lossy columns while others change the columns.
const NOTE_ATTEMPTS_MAX: u32 = 20;

/// What the rows get for which no values are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherRows {
    /// There are none: all rows must get values, or none of them, which makes the columns NULL without a data file.
    #[default]
    Refused,
    /// NULL. Columns that have no NULL, such as tensors, get zeros, and booleans without NULL get FALSE.
    Null,
}

/// Where the columns go.
pub(super) enum Placement {
    /// Behind the others.
    Added,
    /// In the places of columns with the same names. The ids are those of the old columns.
    Replaced(HashSet<i32>),
    /// They are columns of the table: rows with values get these, and other rows keep theirs.
    Filled,
}

/// The fragment whose values are being written.
pub(super) enum Open {
    /// Its values go to its files at once.
    Files(FragmentColumns),
    /// Its values wait until all of them are there, and are then written together with the old ones.
    Values { fragment: u64, updates: Updates },
}

/// New columns of a table, whose values are written fragment by fragment and committed as one version.
pub struct NewColumns {
    pub(super) table: Table,
    /// The new columns.
    pub(super) schema: SchemaRef,
    /// The new columns, with their ids in the table.
    pub(super) fields: Schema,
    /// All columns of the table after the commit.
    pub(super) all: Schema,
    pub(super) placement: Placement,
    pub(super) page_bytes: usize,
    /// The ids that the version uses.
    pub(super) used_ids: HashSet<i32>,
    /// One row with the values of rows without values; `None` if there must not be such rows.
    pub(super) other_rows: Option<RecordBatch>,
    /// The ids of the columns from which the values are computed; `None` for all columns.
    pub(super) inputs: Option<HashSet<i32>>,
    pub(super) open: Option<Open>,
    pub(super) finished: HashMap<u64, Vec<DataFile>>,
    /// The number of rows that were written.
    pub(super) num_rows: u64,
    /// The files that are removed unless they are committed or become drafts.
    pub(super) written: WrittenFiles,
    pub(super) lost_files: LostFiles,
}

impl LakeStore {
    /// Begins to add columns to a table, behind those that it has. `table` is pinned at the version whose rows get
    /// values.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for a reserved name; [`Error::InvalidRequest`] for a name that is taken or that Lance
    /// does not accept; [`Error::UnsafeStore`]; storage errors.
    pub async fn add_columns(&self, table: &Table, fields: &[Field], options: WriteOptions) -> Result<NewColumns> {
        let added = with_media_uncompressed(&ArrowSchema::new(fields.to_vec()));
        check_names(table.name(), &added)?;
        let mut names: HashSet<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        if let Some(twice) = added.fields().iter().find(|field| !names.insert(field.name().clone())) {
            let reason = format!("there is a column {} already; choose another name", twice.name());
            return Err(Error::InvalidRequest { attempted: adding(table), reason });
        }
        let lance = |source: lance_core::Error| Error::storage(adding(table), source);
        let all = table.dataset().schema().merge(added.as_ref()).map_err(lance)?;
        self.new_columns(table, &added, all, Placement::Added, options).await
    }

    /// Begins to replace columns of a table by others with the same names, at the same places. Their indexes are dropped
    /// with the old columns. Older versions keep the old columns.
    ///
    /// # Errors
    /// As for [`LakeStore::add_columns`]; [`Error::InvalidRequest`] for a column that does not exist, and for videos with
    /// an index of their frames.
    pub async fn replace_columns(&self, table: &Table, fields: &[Field], options: WriteOptions) -> Result<NewColumns> {
        let attempted = || format!("replacing columns of table {}", table.snapshot());
        let added = with_media_uncompressed(&ArrowSchema::new(fields.to_vec()));
        check_names(table.name(), &added)?;
        let names: Vec<String> = added.fields().iter().map(|field| field.name().clone()).collect();
        check_columns(table, &names, attempted)?;
        refuse_indexed_videos(table, &names, attempted)?;
        let mut new = Schema::try_from(added.as_ref()).map_err(|source| Error::storage(attempted(), source))?;
        new.fields.iter_mut().for_each(forget_ids);
        let (mut all, mut replaced) = (table.dataset().schema().clone(), HashSet::new());
        for new in new.fields {
            for old in all.fields.iter_mut().filter(|old| old.name == new.name) {
                replaced.extend(ids_of(old));
                *old = new.clone();
            }
        }
        self.new_columns(table, &added, all, Placement::Replaced(replaced), options).await
    }

    /// Begins to give some rows new values in columns of a table. Rows for which none are written keep their values.
    /// Indexes do not answer for the fragments of these rows until they are optimised. The new values of a fragment, at most
    /// 1 GiB, stay in memory until all of them are there.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a column that does not exist, and for videos with an index of their frames;
    /// [`Error::UnsafeStore`]; storage errors.
    pub async fn fill_columns(&self, table: &Table, columns: &[String], options: WriteOptions) -> Result<NewColumns> {
        let attempted = || format!("filling columns of table {}", table.snapshot());
        check_columns(table, columns, attempted)?;
        refuse_indexed_videos(table, columns, attempted)?;
        table.refuse_blobs(columns.iter().map(String::as_str))?;
        let schema = table.schema();
        let fields: Vec<_> = schema.fields().iter().filter(|field| columns.contains(field.name())).cloned().collect();
        let all = table.dataset().schema().clone();
        self.new_columns(table, &Arc::new(ArrowSchema::new(fields)), all, Placement::Filled, options).await
    }

    async fn new_columns(
        &self,
        table: &Table,
        columns: &SchemaRef,
        mut all: Schema,
        placement: Placement,
        options: WriteOptions,
    ) -> Result<NewColumns> {
        self.inner.check_atomic_create().await?;
        if columns.fields().is_empty() {
            return Err(Error::InvalidRequest { attempted: adding(table), reason: "no column was given".into() });
        }
        let lance = |source: lance_core::Error| Error::storage(adding(table), source);
        let used_ids = table.used_field_ids().await?;
        all.try_set_field_id(used_ids.iter().max().copied()).map_err(lance)?;
        all.validate().map_err(lance)?;
        let fields = lance_columns(&all, columns);
        Ok(NewColumns {
            table: table.clone(),
            schema: Arc::new(ArrowSchema::from(&fields)),
            fields,
            all,
            placement,
            page_bytes: options.page_bytes,
            used_ids,
            other_rows: None,
            inputs: None,
            open: None,
            finished: HashMap::new(),
            num_rows: 0,
            written: WrittenFiles::default(),
            lost_files: LostFiles::Remove,
        })
    }
}

impl LakeStore {
    /// Drops columns of a table, with their indexes. Earlier versions keep them. Returns the new version.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a column that does not exist, and if no column would remain; [`Error::Conflict`]
    /// if others changed the columns meanwhile; [`Error::UnsafeStore`]; storage errors.
    pub async fn drop_columns(&self, table: &Table, columns: &[String], note: &ChangeNote) -> Result<u64> {
        let attempted = || format!("dropping columns of table {}", table.snapshot());
        check_columns(table, columns, attempted)?;
        let mut schema = table.dataset().schema().clone();
        schema.fields.retain(|field| !columns.contains(&field.name));
        if schema.fields.is_empty() {
            let reason = "a table must keep a column; drop the table instead".to_string();
            return Err(Error::InvalidRequest { attempted: attempted(), reason });
        }
        self.project(table, schema, note).await
    }

    /// Renames a column of a table. Its values, checksums and indexes stay. Returns the new version.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] for a column that does not exist, and for a name that is taken or that Lance does not
    /// accept; [`Error::InvalidData`] for a reserved name; [`Error::Conflict`] if others changed the columns meanwhile;
    /// [`Error::UnsafeStore`]; storage errors.
    pub async fn rename_column(&self, table: &Table, column: &str, name: &str, note: &ChangeNote) -> Result<u64> {
        let attempted = || format!("renaming column {column} of table {}", table.snapshot());
        check_columns(table, &[column.to_string()], attempted)?;
        let mut schema = table.dataset().schema().clone();
        if schema.fields.iter().any(|field| field.name == name) {
            let reason = format!("there is a column {name} already; choose another name");
            return Err(Error::InvalidRequest { attempted: attempted(), reason });
        }
        schema.fields.iter_mut().filter(|field| field.name == column).for_each(|field| field.name = name.to_string());
        check_names(table.name(), &ArrowSchema::new(vec![Field::new(name, DataType::Null, true)]))?;
        schema.validate().map_err(|source| Error::storage(attempted(), source))?;
        self.project(table, schema, note).await
    }

    /// Notes in the columns of a table that fragments, which will be appended to it, have larger errors than the columns say.
    /// Does nothing for a table that does not exist.
    ///
    /// # Errors
    /// [`Error::Conflict`] if others change the columns again and again; storage errors.
    pub(crate) async fn note_losses(&self, name: &TableName, drafts: &[FragmentDraft]) -> Result<()> {
        // Most tables have no lossy columns, and need not be opened for this.
        if !drafts.iter().any(FragmentDraft::has_losses) {
            return Ok(());
        }
        let mut attempts_left = NOTE_ATTEMPTS_MAX;
        loop {
            attempts_left -= 1;
            let Some(table) = self.try_latest(name).await? else { return Ok(()) };
            let larger = larger_losses(&table.schema(), drafts);
            if larger.is_empty() {
                return Ok(());
            }
            let mut schema = table.dataset().schema().clone();
            for field in &mut schema.fields {
                if let Some(json) = larger.get(&field.name).and_then(|lossy| serde_json::to_string(lossy).ok()) {
                    field.metadata.insert(LOSSY_KEY.into(), json);
                }
            }
            match self.project(&table, schema, &ChangeNote::default()).await {
                Err(Error::Conflict { .. }) if attempts_left > 0 => {}
                done => return done.map(|_| ()),
            }
        }
    }

    /// Commits other columns of the same data files.
    async fn project(&self, table: &Table, schema: Schema, note: &ChangeNote) -> Result<u64> {
        let change = ExactChange {
            base: table,
            operation: Operation::Project { schema, preserves_nullability: true },
            indifferent_to: IndifferentTo::Rows,
            files: Vec::new(),
            lost_files: LostFiles::Remove,
            key: None,
            properties: note.properties.clone(),
        };
        Ok(self.commit_exactly(change).await?.version)
    }
}

/// Checks that a table has these columns.
fn check_columns(table: &Table, columns: &[String], attempted: impl Fn() -> String) -> Result<()> {
    let schema = table.schema();
    let Some(missing) = columns.iter().find(|column| schema.field_with_name(column).is_err()) else { return Ok(()) };
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let reason = format!("it has no column {missing:?}; columns: {}", names.join(", "));
    Err(Error::InvalidRequest { attempted: attempted(), reason })
}

fn adding(table: &Table) -> String {
    format!("adding columns to table {}", table.snapshot())
}

/// Removes the ids of a field and of all fields in it, so that it gets new ones.
fn forget_ids(field: &mut LanceField) {
    field.id = -1;
    field.children.iter_mut().for_each(forget_ids);
}

/// Refuses columns of videos that have an index of their frames, and these indexes: one without the other is of no use.
fn refuse_indexed_videos(table: &Table, columns: &[String], attempted: impl Fn() -> String) -> Result<()> {
    let schema = table.schema();
    let is_named = |name: &str| columns.iter().any(|column| column == name);
    let found = index_columns(&schema).find(|(index, video)| is_named(index) || is_named(video));
    match found {
        None => Ok(()),
        Some((index, video)) => Err(Error::InvalidRequest {
            attempted: attempted(),
            reason: format!(
                "column {video} holds videos, and {index} the indexes of their frames: add a column of another name instead"
            ),
        }),
    }
}
