//! Changes of the columns of a table: columns are added with their values, dropped and renamed, without a rewrite of
//! the others.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Schema as ArrowSchema, SchemaRef};
use lance_core::datatypes::Schema;
use lance_table::format::{DataFile, Fragment};
use lance_table::transaction::Operation;
use stoker_columns::{LOSSY_KEY, kind_of};
use stoker_types::{TableName, to_usize};

use super::ChangeNote;
use super::rewrite::{FragmentColumns, WrittenFiles, lance_columns};
use crate::exact_commit::{ExactChange, IndifferentTo};
use crate::row_id_set::row_offset;
use crate::write::{check_names, conform, larger_losses, with_media_uncompressed};
use crate::{Error, FragmentDraft, LakeStore, Result, Table, WriteOptions};

/// The most attempts to note the errors of lossy columns while others change the columns.
const NOTE_ATTEMPTS_MAX: u32 = 20;

/// New columns of a table, whose values are written fragment by fragment and committed as one version.
///
/// All rows of the pinned version must get values, or none of them, which makes the columns NULL in all rows without a
/// data file. Each fragment gets data files of its own for the new columns; the other columns are neither read nor
/// written.
pub struct NewColumns {
    table: Table,
    /// The new columns.
    schema: SchemaRef,
    /// The new columns, with their ids in the table.
    fields: Schema,
    /// All columns of the table after the commit.
    all: Schema,
    page_bytes: usize,
    open: Option<FragmentColumns>,
    finished: HashMap<u64, Vec<DataFile>>,
    /// The number of rows that were written.
    num_rows: u64,
    written: WrittenFiles,
}

impl LakeStore {
    /// Begins to add columns to a table, behind those that it has. `table` is pinned at the version whose rows get
    /// values.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for a reserved name; [`Error::InvalidRequest`] for a name that is taken or that Lance
    /// does not accept; [`Error::UnsafeStore`]; storage errors.
    pub async fn add_columns(&self, table: &Table, fields: &[Field], options: WriteOptions) -> Result<NewColumns> {
        self.inner.check_atomic_create().await?;
        let invalid = |reason: String| Error::InvalidRequest { attempted: adding(table), reason };
        let added = with_media_uncompressed(&ArrowSchema::new(fields.to_vec()));
        check_names(table.name(), &added)?;
        let mut names: HashSet<String> = table.schema().fields().iter().map(|field| field.name().clone()).collect();
        if let Some(twice) = added.fields().iter().find(|field| !names.insert(field.name().clone())) {
            return Err(invalid(format!("there is a column {} already; choose another name", twice.name())));
        }
        if fields.is_empty() {
            return Err(invalid("no column was given".into()));
        }
        let lance = |source: lance_core::Error| Error::storage(adding(table), source);
        let mut all = table.dataset().schema().merge(added.as_ref()).map_err(lance)?;
        // An index whose column is gone, of another writer, must not become one of a new column with the same id.
        let indexes = table.own_indexes().await?;
        let indexed = indexes.iter().flat_map(|index| index.fields.iter().copied()).max();
        let used = indexed.into_iter().chain([table.dataset().manifest().max_field_id()]).max();
        all.try_set_field_id(used).map_err(lance)?;
        all.validate().map_err(lance)?;
        let fields = lance_columns(&all, &added);
        Ok(NewColumns {
            table: table.clone(),
            schema: Arc::new(ArrowSchema::from(&fields)),
            fields,
            all,
            page_bytes: options.page_bytes,
            open: None,
            finished: HashMap::new(),
            num_rows: 0,
            written: WrittenFiles::default(),
        })
    }

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
            key: None,
            properties: note.properties.clone(),
        };
        Ok(self.commit_exactly(change).await?.version)
    }
}

impl NewColumns {
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
            let offsets: Vec<u32> = addrs.iter().map(|addr| row_offset(*addr)).collect();
            let written = open.write(&offsets, &values.slice(start, addrs.len())).await;
            self.open = Some(open);
            written?;
            start += addrs.len();
        }
        self.num_rows += row_addrs.len() as u64;
        Ok(())
    }

    /// Commits the columns. Returns the new version.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for rows without values; [`Error::Conflict`] if others changed rows or columns meanwhile;
    /// storage errors. The table stays as it was. [`Error::OutcomeUnknown`] when nothing tells whether the commit took
    /// effect.
    pub async fn commit(mut self, note: &ChangeNote) -> Result<u64> {
        let committed = self.try_commit(note).await;
        self.abort().await;
        committed
    }

    /// Discards the columns: their files are removed as far as the store allows.
    pub async fn abort(self) {
        if let Some(open) = self.open {
            open.abort().await;
        }
        self.table.lake().remove_data_files(self.table.name(), self.written.take()).await;
    }

    /// Takes the files of a fragment, which are created if they do not exist.
    async fn opened(&mut self, id: u64) -> Result<FragmentColumns> {
        match self.open.take() {
            Some(open) if open.fragment == id => return Ok(open),
            Some(open) => self.finish_fragment(open).await?,
            None => {}
        }
        if self.finished.contains_key(&id) {
            let reason = format!("values of fragment {id} came after those of another one: give its rows together");
            return Err(Error::InvalidData { table: self.table.name().to_string(), reason });
        }
        let Some(fragment) = self.table.dataset().get_fragment(to_usize(id)) else {
            return Err(self.table.no_row(id << 32, "; there is no such fragment".into()));
        };
        let (table, schema, page_bytes) = (&self.table, &self.schema, self.page_bytes);
        FragmentColumns::create(table, &fragment, schema, &self.fields, page_bytes, &self.written).await
    }

    async fn finish_fragment(&mut self, open: FragmentColumns) -> Result<()> {
        let id = open.fragment;
        self.finished.insert(id, open.finish().await?);
        Ok(())
    }

    async fn try_commit(&mut self, note: &ChangeNote) -> Result<u64> {
        if let Some(open) = self.open.take() {
            self.finish_fragment(open).await?;
        }
        self.check_complete()?;
        let with_files = |fragment: &Fragment| {
            let mut fragment = fragment.clone();
            fragment.files.extend(self.finished.get(&fragment.id).into_iter().flatten().cloned());
            fragment
        };
        let operation = Operation::Merge {
            fragments: self.table.dataset().fragments().iter().map(with_files).collect(),
            schema: self.all.clone(),
            preserves_nullability: self.schema.fields().iter().all(|field| field.is_nullable()),
        };
        let change = ExactChange {
            base: &self.table,
            operation,
            indifferent_to: IndifferentTo::Nothing,
            files: self.written.take(),
            key: None,
            properties: note.properties.clone(),
        };
        let lake = self.table.lake().clone();
        Ok(lake.commit_exactly(change).await?.version)
    }

    /// Checks that all rows have values, or that none has and all may be null.
    fn check_complete(&self) -> Result<()> {
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
}

fn adding(table: &Table) -> String {
    format!("adding columns to table {}", table.snapshot())
}

/// Checks that a table has these columns.
fn check_columns(table: &Table, columns: &[String], attempted: impl Fn() -> String) -> Result<()> {
    let schema = table.schema();
    let Some(missing) = columns.iter().find(|column| schema.field_with_name(column).is_err()) else { return Ok(()) };
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    let reason = format!("it has no column {missing:?}; columns: {}", names.join(", "));
    Err(Error::InvalidRequest { attempted: attempted(), reason })
}
