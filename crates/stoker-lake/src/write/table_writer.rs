//! Writes record batches as fragments.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Field, Schema as ArrowSchema, SchemaRef};
use arrow_select::concat::concat_batches;
use futures::future::try_join_all;
use lance_core::datatypes::Schema;
use lance_table::format::Fragment;
use stoker_types::{TableName, fixed_row_bytes, is_encoded_image, is_heavy};

use super::column_file::{ColumnFile, compact};
use super::{FragmentDraft, check_schema};
use crate::{Error, Lake, Result};

/// Field metadata key of Lance that chooses a compression.
const COMPRESSION_KEY: &str = "lance-encoding:compression";

/// Sizes of fragments and pages.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Rows per fragment at most.
    pub rows_per_fragment_max: u64,
    /// Bytes per fragment at most, before encoding.
    pub bytes_per_fragment_max: u64,
    /// Bytes of a page of a heavy column at most; a single wider row is a page of its own.
    pub page_bytes: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { rows_per_fragment_max: 1 << 20, bytes_per_fragment_max: 4 << 30, page_bytes: (8 << 20) - (128 << 10) }
    }
}

/// Writes record batches as fragments that [`Lake::commit`] makes visible. Holds at most one page per heavy column.
pub struct TableWriter {
    lake: Lake,
    name: TableName,
    schema: SchemaRef,
    lance_schema: Schema,
    options: WriteOptions,
    /// Rows per page for the whole fragment: that of its widest heavy column.
    rows_per_page: usize,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    open: Option<OpenFragment>,
    drafts: Vec<FragmentDraft>,
}

struct OpenFragment {
    files: Vec<ColumnFile>,
    rows: u64,
    bytes: u64,
}

impl Lake {
    /// A writer of rows for a table, which need not exist yet.
    ///
    /// # Errors
    /// [`Error::InvalidData`] when the table exists with another schema and `for_append` is set; storage errors.
    pub async fn writer(
        &self,
        name: &TableName,
        schema: &SchemaRef,
        for_append: bool,
        options: WriteOptions,
    ) -> Result<TableWriter> {
        let existing = if for_append { self.try_latest(name).await? } else { None };
        let schema = with_media_uncompressed(schema);
        let lance_schema = match &existing {
            Some(table) => {
                check_schema(name, &table.schema(), &schema)?;
                table.dataset().schema().clone()
            }
            None => Schema::try_from(schema.as_ref()).map_err(|source| Error::storage("reading a schema", source))?,
        };
        let schema = existing.map_or(schema, |table| table.schema());
        let widest = schema.fields().iter().filter(|field| is_heavy(field));
        let widest = widest.filter_map(|field| fixed_row_bytes(field.data_type())).max();
        let rows_per_page = widest.map_or(8192, |bytes| (options.page_bytes / bytes.max(1)).max(1));
        Ok(TableWriter {
            lake: self.clone(),
            name: name.clone(),
            schema,
            lance_schema,
            options,
            rows_per_page,
            pending: Vec::new(),
            pending_rows: 0,
            open: None,
            drafts: Vec::new(),
        })
    }
}

impl TableWriter {
    /// The schema that rows are written with, which a commit needs.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Adds rows. Columns are matched by name.
    ///
    /// # Errors
    /// [`Error::InvalidData`] naming column and row; storage errors. The rows of this call may be partly written; nothing is
    /// visible before a commit.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = self.conform(batch)?;
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = (self.rows_per_page - self.pending_rows).min(batch.num_rows() - start);
            self.pending.push(batch.slice(start, rows));
            self.pending_rows += rows;
            start += rows;
            if self.pending_rows == self.rows_per_page {
                self.flush_page().await?;
            }
        }
        Ok(())
    }

    /// Writes what is pending and returns all fragments.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn finish(mut self) -> Result<Vec<FragmentDraft>> {
        self.flush_page().await?;
        self.close_fragment().await?;
        Ok(std::mem::take(&mut self.drafts))
    }

    /// Gives up: files that are not finished are removed as far as the store allows.
    pub async fn abort(mut self) {
        if let Some(open) = self.open.take() {
            for file in open.files {
                file.abort().await;
            }
        }
    }

    fn conform(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let fail = |reason: String| Error::InvalidData { table: self.name.to_string(), reason };
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for field in self.schema.fields() {
            let Some(column) = batch.column_by_name(field.name()) else {
                return Err(fail(format!("column {} is missing", field.name())));
            };
            if !column.data_type().equals_datatype(field.data_type()) {
                let types = (field.data_type(), column.data_type());
                return Err(fail(format!("column {} should be {}, not {}", field.name(), types.0, types.1)));
            }
            let must_be_set = !field.is_nullable() || (is_heavy(field) && fixed_row_bytes(field.data_type()).is_some());
            if must_be_set && column.null_count() > 0 {
                let row = (0..column.len()).find(|row| column.is_null(*row)).unwrap_or_default();
                return Err(fail(format!("column {} must not be null, but row {row} of the batch is", field.name())));
            }
            columns.push(arrow_array::make_array(
                column.to_data().into_builder().data_type(field.data_type().clone()).build().map_err(|source| {
                    fail(format!("column {}: {source}", field.name()))
                })?,
            ));
        }
        RecordBatch::try_new(self.schema.clone(), columns).map_err(|source| fail(source.to_string()))
    }

    async fn flush_page(&mut self) -> Result<()> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        let page = match self.pending.as_slice() {
            [one] => compact(one)?,
            many => concat_batches(&self.schema, many).map_err(|source| Error::storage("gathering a page", source))?,
        };
        self.pending.clear();
        self.pending_rows = 0;
        if self.open.is_none() {
            self.open = Some(self.open_fragment().await?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        try_join_all(open.files.iter_mut().map(|file| async {
            let part = page.project(&file.columns).map_err(|source| Error::storage("splitting columns", source))?;
            file.write(&part).await
        }))
        .await?;
        open.rows += page.num_rows() as u64;
        open.bytes += page.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum::<u64>();
        if open.rows + self.rows_per_page as u64 > self.options.rows_per_fragment_max
            || open.bytes >= self.options.bytes_per_fragment_max
        {
            self.close_fragment().await?;
        }
        Ok(())
    }

    async fn open_fragment(&self) -> Result<OpenFragment> {
        let fields = self.schema.fields();
        let (heavy, light): (Vec<usize>, Vec<usize>) = (0..fields.len()).partition(|index| is_heavy(&fields[*index]));
        let mut groups: Vec<(Vec<usize>, bool)> = heavy.into_iter().map(|index| (vec![index], true)).collect();
        if !light.is_empty() {
            groups.push((light, false));
        }
        let path = self.lake.table_path(&self.name);
        let mut files = Vec::with_capacity(groups.len());
        for (columns, heavy) in groups {
            let names: Vec<&str> = columns.iter().map(|index| fields[*index].name().as_str()).collect();
            let schema = self.lance_schema.project(&names).map_err(|source| Error::storage("splitting a schema", source))?;
            files.push(ColumnFile::create(&self.lake.inner, &path, schema, columns, heavy).await?);
        }
        Ok(OpenFragment { files, rows: 0, bytes: 0 })
    }

    async fn close_fragment(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut fragment = Fragment::new(0);
        fragment.physical_rows = Some(open.rows as usize);
        let mut bytes = 0;
        for (file, size) in try_join_all(open.files.into_iter().map(ColumnFile::finish)).await? {
            fragment.files.push(file);
            bytes += size;
        }
        self.drafts.push(FragmentDraft::new(fragment, bytes));
        Ok(())
    }
}

/// Lance would compress JPEG files once more unless told not to.
fn with_media_uncompressed(schema: &ArrowSchema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        if !is_encoded_image(field) {
            return field.clone();
        }
        let mut metadata = field.metadata().clone();
        metadata.entry(COMPRESSION_KEY.into()).or_insert_with(|| "none".into());
        Arc::new(field.as_ref().clone().with_metadata(metadata))
    };
    Arc::new(ArrowSchema::new_with_metadata(
        schema.fields().iter().map(field).collect::<Vec<_>>(),
        schema.metadata().clone(),
    ))
}
