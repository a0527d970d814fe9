//! Writes Arrow data from Python as one new table version.

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker::{Error, Result, refuse_view};
use stoker_columns::{
    Mismatch, WrongValue, fit, is_compressed_tensor, may_have_dictionaries, target_schema, with_dictionaries,
    wrong_value,
};
use stoker_lake::{CommitMode, LakeStore, TableWriter, WriteOptions};
use stoker_python::{OpenWrite, PlannedWrite, WriteRequest};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

/// The bytes of rows that are compressed at once.
const COMPRESSED_AT_ONCE_BYTES: usize = 64 << 20;

/// A write to a table whose newest version is known.
struct Planned {
    lake: LakeStore,
    name: TableName,
    mode: CommitMode,
    options: WriteOptions,
    /// The schema of the newest version, or `None` if there is no such table.
    existing: Option<SchemaRef>,
}

/// Files that are being written. Nothing is visible before the commit.
struct Open {
    lake: LakeStore,
    name: TableName,
    mode: CommitMode,
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

/// Looks up the table. An error leaves the table as it was.
pub(crate) async fn plan_write(lake: &LakeStore, request: &WriteRequest) -> Result<Box<dyn PlannedWrite>> {
    let name = TableName::try_new(request.table.as_str())?;
    let mode = match request.mode.as_str() {
        "create" => CommitMode::Create,
        "append" => CommitMode::Append,
        "create_or_append" => CommitMode::CreateOrAppend,
        "overwrite" => CommitMode::Overwrite,
        other => {
            let message = format!("mode {other:?} is unknown; modes: create, append, create_or_append, overwrite");
            return Err(Error::invalid(message));
        }
    };
    let existing = existing(lake, &name).await?;
    if mode == CommitMode::Create && existing.is_some() {
        let (table, lake) = (name.to_string(), lake.uri().to_string());
        return Err(stoker_lake::Error::TableExists { table, lake }.into());
    }
    if mode != CommitMode::Append && existing.is_none() {
        refuse_view(lake, &name).await?;
    }
    let mut options = WriteOptions::default();
    if let Some(rows) = request.rows_per_fragment_max {
        options.rows_per_fragment_max = rows.max(1);
    }
    if let Some(bytes) = request.page_bytes {
        options.page_bytes = bytes.max(1);
    }
    Ok(Box::new(Planned { lake: lake.clone(), name, mode, options, existing }))
}

/// Returns the schema of the newest version, or `None` if there is no such table.
async fn existing(lake: &LakeStore, name: &TableName) -> Result<Option<SchemaRef>> {
    match lake.table(name, &SnapshotRef::Latest).await {
        Ok(table) => Ok(Some(table.schema())),
        Err(absent) if absent.kind() == ErrorKind::NotFound => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

impl PlannedWrite for Planned {
    fn open(self: Box<Self>, incoming: SchemaRef) -> BoxFuture<'static, Result<Box<dyn OpenWrite>>> {
        async move {
            let Planned { lake, name, mode, options, existing } = *self;
            let for_append = matches!(mode, CommitMode::Append | CommitMode::CreateOrAppend);
            let target = target_schema(&incoming, existing.as_deref().filter(|_| for_append));
            let target = target.map_err(|source| Error::invalid(source.to_string()))?;
            let is_new = !for_append || existing.is_none();
            let writer = match is_new && may_have_dictionaries(&target) {
                true => OpenWriter::AtFirstRows(options),
                false => OpenWriter::Ready(Box::new(lake.writer(&name, &target, for_append, options).await?)),
            };
            Ok(Box::new(Open { lake, name, mode, target, writer, num_rows: 0 }) as Box<dyn OpenWrite>)
        }
        .boxed()
    }
}

impl OpenWrite for Open {
    fn write(&mut self, batch: RecordBatch) -> BoxFuture<'_, Result<()>> {
        async move {
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
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, ()> {
        async move {
            if let OpenWriter::Ready(writer) = self.writer {
                writer.abort().await;
            }
        }
        .boxed()
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        async move {
            let none = RecordBatch::new_empty(self.target.clone());
            self.open_writer(&none).await?;
            let Open { lake, name, mode, writer, .. } = *self;
            let OpenWriter::Ready(writer) = writer else { return Err(Error::internal("a writer that was not opened")) };
            let schema = writer.schema();
            let fragments = writer.finish().await?;
            Ok(lake.commit(&name, &schema, mode, fragments, None).await?)
        }
        .boxed()
    }
}

impl Open {
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
        let batch = fit(batch, &self.target).map_err(|source| Error::invalid(source.to_string()))?;
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
