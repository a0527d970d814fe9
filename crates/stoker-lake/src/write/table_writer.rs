//! Writes record batches as fragments.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{Schema as ArrowSchema, SchemaRef};
use lance_core::datatypes::Schema;
use lance_table::format::Fragment;
use stoker_columns::with_index_columns;
use stoker_pages::with_media_uncompressed;
use stoker_types::{TableName, to_usize};

use super::{FragmentDraft, FragmentFiles, check_names, check_schema, conform, with_losses};
use crate::{Error, LakeStore, Result, Table};

/// Limits on the sizes of fragments and pages.
#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// The maximum number of rows per fragment. Default: 2^20.
    pub rows_per_fragment_max: u64,
    /// The maximum size of a fragment in bytes, before encoding. Default: 4 GiB.
    pub bytes_per_fragment_max: u64,
    /// The maximum size of a page of a heavy column in bytes; a single wider row is a page of its own. Default: 8 MiB
    /// less 128 KiB.
    pub page_bytes: usize,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { rows_per_fragment_max: 1 << 20, bytes_per_fragment_max: 4 << 30, page_bytes: (8 << 20) - (128 << 10) }
    }
}

/// Writes record batches as fragments that [`LakeStore::commit`] makes visible.
///
/// Each heavy column has a data file of its own, whose pages hold as many rows as fit `page_bytes`; the light columns
/// share another file. All files of a fragment are written at the same time. The writer holds at most one page per
/// heavy column and the page that is being encoded, about 1 MiB per light column, and for the open fragment the
/// checksums: 4 bytes per row of each column that can be read as plain bytes or is heavy, and 4 bytes per 4 KiB of
/// light columns.
pub struct TableWriter {
    target: Target,
    /// The number of rows that were accepted.
    num_rows: u64,
    /// True while files are written: after a failed or cancelled write they may lack rows.
    incomplete: bool,
    open: Option<OpenFragment>,
    drafts: Vec<FragmentDraft>,
    /// The largest error of each lossy column so far.
    losses: BTreeMap<String, f64>,
}

/// The table and the options of a writer. They are separate from the open files, which threads cannot share.
struct Target {
    lake: LakeStore,
    name: TableName,
    schema: SchemaRef,
    lance_schema: Schema,
    options: WriteOptions,
}

struct OpenFragment {
    files: FragmentFiles,
    rows: u64,
    bytes: u64,
}

impl LakeStore {
    /// Returns a writer of rows for a table, which need not exist yet, or for a branch, which must exist. With `for_append`,
    /// the rows must fit the table if it exists.
    ///
    /// # Errors [`Error::UnsafeStore`]; [`Error::NotFound`] for a branch that does not exist; [`Error::InvalidData`] for a
    /// column with a reserved name, and for a table that exists with another schema if `for_append` is set; storage errors.
    pub async fn writer(
        &self,
        name: &TableName,
        schema: &SchemaRef,
        for_append: bool,
        options: WriteOptions,
    ) -> Result<TableWriter> {
        self.inner.check_atomic_create().await?;
        if !self.has_branch(name).await? {
            return Err(self.no_table(name).await?);
        }
        let existing = if for_append { self.try_latest(name).await? } else { None };
        let (schema, lance_schema) = match &existing {
            Some(table) => {
                table.refuse_rows_with_blobs()?;
                check_schema(name, &table.schema(), schema)?;
                (table.schema(), table.dataset().schema().clone())
            }
            None => {
                let invalid = |reason| Error::InvalidData { table: name.to_string(), reason };
                let schema = &with_index_columns(schema).map_err(invalid)?;
                check_names(name, schema)?;
                let lance_schema = Schema::try_from(with_media_uncompressed(schema).as_ref())
                    .map_err(|source| Error::storage(format!("creating table {name}"), source))?;
                // Rows are written with the schema that readers see: Lance keeps no names and no nullability of the
                // items of fixed-size lists.
                (Arc::new(ArrowSchema::from(&lance_schema)), lance_schema)
            }
        };
        let target = Target { lake: self.clone(), name: name.clone(), schema, lance_schema, options };
        Ok(TableWriter::new(target))
    }
}

impl Table {
    /// Returns a writer of rows with the columns of this version.
    ///
    /// # Errors
    /// [`Error::InvalidData`] for a table with blobs.
    pub(crate) fn writer(&self, options: WriteOptions) -> Result<TableWriter> {
        self.refuse_rows_with_blobs()?;
        let (lake, name, schema) = (self.lake().clone(), self.name().clone(), self.schema());
        let target = Target { lake, name, schema, lance_schema: self.dataset().schema().clone(), options };
        Ok(TableWriter::new(target))
    }
}

impl TableWriter {
    fn new(target: Target) -> Self {
        let (drafts, losses) = (Vec::new(), BTreeMap::new());
        Self { target, num_rows: 0, incomplete: false, open: None, drafts, losses }
    }

    /// The schema with which rows are written. A commit needs it.
    pub fn schema(&self) -> SchemaRef {
        self.target.schema.clone()
    }

    /// Adds rows. Columns are matched by name.
    ///
    /// # Errors
    /// [`Error::InvalidData`] naming column and row; storage errors. The rows of this call may be partly written, but
    /// nothing is visible before a commit. After a storage error or a cancelled call the writer cannot be used any
    /// more.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let Target { name, schema, options, .. } = &self.target;
        let (rows_max, bytes_max) = (options.rows_per_fragment_max, options.bytes_per_fragment_max);
        let batch = with_losses(name, schema, batch, self.num_rows, &mut self.losses)?;
        let batch = conform(name, schema, &batch, self.num_rows)?;
        self.check_complete()?;
        self.incomplete = true;
        let row_bytes = (bytes_of(&batch) / batch.num_rows().max(1) as u64).max(1);
        let mut start = 0;
        while start < batch.num_rows() {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.target.open_fragment().await?,
            };
            let rows_left = rows_max.saturating_sub(open.rows);
            let bytes_left = bytes_max.saturating_sub(open.bytes);
            let rows = rows_left.min(bytes_left / row_bytes).max(1).min((batch.num_rows() - start) as u64);
            let part = batch.slice(start, to_usize(rows));
            open.files.write(&part).await?;
            open.rows += rows;
            open.bytes += rows * row_bytes;
            start += to_usize(rows);
            self.num_rows += rows;
            let full = open.rows >= rows_max || open.bytes + row_bytes > bytes_max;
            self.open = Some(open);
            if full {
                self.close_fragment().await?;
            }
        }
        self.incomplete = false;
        Ok(())
    }

    /// Writes the pending rows and returns all fragments.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn finish(mut self) -> Result<Vec<FragmentDraft>> {
        self.check_complete()?;
        self.close_fragment().await?;
        Ok(std::mem::take(&mut self.drafts))
    }

    /// The names of the data files of the fragments that are complete.
    pub(crate) fn files(&self) -> Vec<String> {
        self.drafts.iter().flat_map(FragmentDraft::files).collect()
    }

    /// Discards the open fragment: its files are removed as far as the store allows.
    pub async fn abort(mut self) {
        if let Some(open) = self.open.take() {
            open.files.abort().await;
        }
    }

    fn check_complete(&self) -> Result<()> {
        if !self.incomplete {
            return Ok(());
        }
        let attempted = format!("writing table {}", self.target.name);
        Err(Error::InvalidRequest { attempted, reason: "an earlier write failed or was cancelled; start again".into() })
    }

    async fn close_fragment(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let mut fragment = Fragment::new(0);
        fragment.physical_rows = Some(to_usize(open.rows));
        let mut bytes = 0;
        for (file, size) in open.files.finish().await? {
            fragment.files.push(file);
            bytes += size;
        }
        self.drafts.push(FragmentDraft::new(fragment, bytes, &self.target.lance_schema, &self.losses));
        Ok(())
    }
}

impl Target {
    async fn open_fragment(&self) -> Result<OpenFragment> {
        let path = self.lake.table_path(&self.name);
        let page_bytes = self.options.page_bytes;
        let files = FragmentFiles::create(&self.lake.inner, &path, &self.schema, &self.lance_schema, page_bytes);
        Ok(OpenFragment { files: files.await?, rows: 0, bytes: 0 })
    }
}

fn bytes_of(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0) as u64).sum()
}
