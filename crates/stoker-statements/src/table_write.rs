//! Writes of rows that come as record batches with their metadata, such as those of Python.
//!
//! ```text
//! columns ──IncomingColumns──► features of Hugging Face ──target_schema──► columns of the table
//! batches ──────────────────────────convert───────────────────fit, check──► TableWriter ──► one commit
//! ```
//!
//! A [`BulkInsert`](crate::BulkInsert) casts values as SQL does; a [`TableWrite`] keeps them, and what the metadata of their
//! columns says: files of images, codecs, masks.

mod incoming;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use stoker_columns::{
    Mismatch, WrongValue, fit, is_compressed_tensor, may_have_dictionaries, target_schema, with_dictionaries,
    wrong_value,
};
use stoker_lake::{CommitKey, CommitMode, LakeStore, Table, TableWriter, WriteOptions};
use stoker_types::calls::WriteKey;
use stoker_types::{ErrorKind, SnapshotRef, TableName, WriteMode, WriteRequest, to_usize};

use self::incoming::IncomingColumns;
use crate::writes::refuse_view;
use crate::{Error, Result};

/// The bytes of rows that are compressed at once.
const COMPRESSED_AT_ONCE_BYTES: usize = 64 << 20;

/// A write that is under way. Nothing is visible before [`TableWrite::commit`].
pub struct TableWrite(State);

enum State {
    /// The write took effect before, under its key: the version. Rows are ignored.
    Done(u64),
    Open(Box<Open>),
}

struct Open {
    lake: LakeStore,
    name: TableName,
    mode: CommitMode,
    key: Option<WriteKey>,
    incoming: IncomingColumns,
    target: SchemaRef,
    writer: OpenWriter,
    num_rows: u64,
}

/// The writer of the rows.
enum OpenWriter {
    /// It is opened for the first rows, of which dictionaries of small tensors are made.
    AtFirstRows(WriteOptions),
    Ready(Box<TableWriter>),
}

impl TableWrite {
    /// Begins to write rows with these columns.
    ///
    /// # Errors
    /// [`Error::Lake`] for a table that exists or does not, as the mode says, and for columns that do not fit it;
    /// [`Error::Refused`] for codecs and features that do not fit their columns; [`Error::Exists`] for a view of this name;
    /// storage errors.
    pub async fn begin(lake: &LakeStore, request: &WriteRequest, columns: &Schema) -> Result<Self> {
        let WriteRequest { table: name, mode, key, has_features, .. } = request.clone();
        let existing = existing(lake, &name).await?;
        if let (Some(table), Some(key), WriteMode::Create) = (&existing, &key, mode)
            && let Some(version) = table.find_commit(commit_key(key)).await?
        {
            return Ok(Self(State::Done(version)));
        }
        if mode == WriteMode::Create && existing.is_some() {
            let (table, lake) = (name.to_string(), lake.uri().to_string());
            return Err(stoker_lake::Error::TableExists { table, lake }.into());
        }
        if mode != WriteMode::Append && existing.is_none() {
            refuse_view(lake, &name).await?;
        }
        let incoming = IncomingColumns::try_new(&name, columns, has_features)?;
        let appended_to = existing.map(|table| table.schema()).filter(|_| mode.appends());
        let target = target_schema(incoming.schema(), appended_to.as_deref());
        let target = target.map_err(|source| Error::refused(format!("table {name}"), source.to_string()))?;
        let options = options(request);
        let writer = match appended_to.is_none() && may_have_dictionaries(&target) {
            true => OpenWriter::AtFirstRows(options),
            false => OpenWriter::Ready(Box::new(lake.writer(&name, &target, mode.appends(), options).await?)),
        };
        let (lake, mode) = (lake.clone(), commit_mode(mode));
        Ok(Self(State::Open(Box::new(Open { lake, name, mode, key, incoming, target, writer, num_rows: 0 }))))
    }

    /// Writes rows.
    ///
    /// # Errors
    /// [`Error::Lake`] for a value that does not fit, with its column and row, and for storage errors. The write can then only
    /// be aborted.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.0 {
            State::Done(_) => Ok(()),
            State::Open(open) => open.write(batch).await,
        }
    }

    /// Removes what was written, as far as the store allows.
    pub async fn abort(self) {
        if let State::Open(open) = self.0
            && let OpenWriter::Ready(writer) = open.writer
        {
            writer.abort().await;
        }
    }

    /// Commits the rows as one version, and returns it.
    ///
    /// # Errors
    /// Those of [`LakeStore::commit`].
    pub async fn commit(self) -> Result<u64> {
        match self.0 {
            State::Done(version) => Ok(version),
            State::Open(open) => open.commit().await,
        }
    }
}

/// Returns the version that a write became under its key, if it took effect.
///
/// # Errors
/// A malformed name; storage errors.
pub async fn find_write(lake: &LakeStore, table: &str, key: &WriteKey) -> Result<Option<u64>> {
    match existing(lake, &TableName::try_new(table)?).await? {
        Some(table) => Ok(table.find_commit(commit_key(key)).await?),
        None => Ok(None),
    }
}

fn commit_key(key: &WriteKey) -> CommitKey<'_> {
    CommitKey { key: &key.key, since_version: key.since_version, chosen_at: None }
}

fn commit_mode(mode: WriteMode) -> CommitMode {
    match mode {
        WriteMode::Create => CommitMode::Create,
        WriteMode::Append => CommitMode::Append,
        WriteMode::CreateOrAppend => CommitMode::CreateOrAppend,
        WriteMode::Overwrite => CommitMode::Overwrite,
    }
}

fn options(request: &WriteRequest) -> WriteOptions {
    let default = WriteOptions::default();
    WriteOptions {
        rows_per_fragment_max: request.rows_per_fragment_max.unwrap_or(default.rows_per_fragment_max).max(1),
        page_bytes: request.page_bytes.map_or(default.page_bytes, to_usize).max(1),
        ..default
    }
}

/// Returns the newest version of a table, or `None` if there is no such table.
async fn existing(lake: &LakeStore, name: &TableName) -> Result<Option<Table>> {
    match lake.table(name, &SnapshotRef::Latest).await {
        Ok(table) => Ok(Some(table)),
        Err(absent) if absent.kind() == ErrorKind::NotFound => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

impl Open {
    async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = self.incoming.convert(batch).map_err(|wrong| self.invalid(wrong))?;
        if batch.num_rows() > 0 {
            self.open_writer(&batch).await?;
        }
        let at_once = self.rows_at_once(&batch);
        let (mut start, num_rows) = (0, batch.num_rows());
        loop {
            self.write_part(&batch.slice(start, at_once.min(num_rows - start))).await?;
            start += at_once;
            if start >= num_rows {
                return Ok(());
            }
        }
    }

    /// Opens the writer, if it waits for the first rows.
    async fn open_writer(&mut self, first: &RecordBatch) -> Result<()> {
        if let OpenWriter::AtFirstRows(options) = &self.writer {
            self.target = with_dictionaries(&self.target, first);
            let is_append = matches!(self.mode, CommitMode::Append | CommitMode::CreateOrAppend);
            let writer = self.lake.writer(&self.name, &self.target, is_append, options.clone()).await?;
            self.writer = OpenWriter::Ready(Box::new(writer));
        }
        Ok(())
    }

    /// Returns how many rows of a batch are written at once: all, unless some are compressed.
    fn rows_at_once(&self, batch: &RecordBatch) -> usize {
        if !self.target.fields().iter().any(|field| is_compressed_tensor(field)) {
            return batch.num_rows().max(1);
        }
        let bytes = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        let row_bytes = bytes.sum::<usize>().div_ceil(batch.num_rows().max(1)).max(1);
        (COMPRESSED_AT_ONCE_BYTES / row_bytes).max(1)
    }

    async fn write_part(&mut self, batch: &RecordBatch) -> Result<()> {
        if let Some(wrong) = null_tensor(batch, &self.target) {
            return Err(self.invalid(wrong));
        }
        let batch = fit(batch, &self.target).map_err(|wrong| self.invalid(wrong))?;
        if let Some(wrong) = wrong_value(&batch, &self.target) {
            return Err(self.invalid(wrong));
        }
        self.num_rows += batch.num_rows() as u64;
        match &mut self.writer {
            OpenWriter::Ready(writer) => Ok(writer.write(&batch).await?),
            // The batches so far had no rows.
            OpenWriter::AtFirstRows(_) => Ok(()),
        }
    }

    fn invalid(&self, wrong: WrongValue) -> Error {
        stoker_lake::Error::InvalidData { table: self.name.to_string(), reason: described(wrong, self.num_rows) }.into()
    }

    async fn commit(mut self) -> Result<u64> {
        let none = RecordBatch::new_empty(self.target.clone());
        self.open_writer(&none).await?;
        let Open { lake, name, mode, key, writer, .. } = self;
        let OpenWriter::Ready(writer) = writer else { return Err(Error::internal("a writer that was not opened")) };
        let schema = writer.schema();
        let fragments = writer.finish().await?;
        Ok(lake.commit(&name, &schema, mode, fragments, key.as_ref().map(commit_key)).await?)
    }
}

/// Returns the first null in a column of compressed tensors, which have none.
fn null_tensor(batch: &RecordBatch, target: &Schema) -> Option<WrongValue> {
    let columns = target.fields().iter().zip(batch.columns()).filter(|(field, _)| is_compressed_tensor(field));
    let mut with_nulls = columns.filter(|(_, column)| column.null_count() > 0);
    with_nulls.find_map(|(field, column)| {
        let row = (0..column.len()).find(|row| column.is_null(*row))?;
        let mismatch = Mismatch { row: Some(row), expected: "a tensor".into(), found: "null".into() };
        Some(WrongValue { column: field.name().clone(), mismatch })
    })
}

/// Describes a wrong value of a batch whose first row has the number `first_row`.
fn described(wrong: WrongValue, first_row: u64) -> String {
    let WrongValue { column, mismatch: Mismatch { row, expected, found } } = wrong;
    let row = row.map_or(String::new(), |row| format!(" row {}", first_row + row as u64));
    format!("column {column}{row}: expected {expected}, found {found}")
}
