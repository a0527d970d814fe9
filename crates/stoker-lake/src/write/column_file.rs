//! Writes the data files of a fragment.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{ArrowError, FieldRef, Schema as ArrowSchema, SchemaRef};
use futures::future::try_join_all;
use lance_core::datatypes::{Field, Schema};
use lance_file::version::LanceFileVersion;
use lance_file::versions::{create_writer, v2_2};
use lance_file::writer::{FileWriter, FileWriterOptions};
use lance_io::object_writer::WriteResult;
use lance_io::traits::Writer;
use lance_table::format::DataFile;
use object_store::path::Path;
use stoker_columns::{is_heavy, kind_of};
use stoker_pages::{
    CHECKSUMS_KEY, COMPRESSION_KEY, COMPRESSION_LEVEL_KEY, PageBuffer, checksums_entry, compact, may_be_plain,
    retype_columns,
};
use stoker_store::sectors::{TrailerBuilder, checked_name};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::checksums::row_checksums;
use crate::lake::LakeInner;
use crate::{Error, Result};

/// The number of bytes that each light column collects before Lance writes a page.
const LIGHT_PAGE_BYTES: u64 = 1 << 20;

/// The open data files of one fragment: one for each heavy column, and one for all light columns. All of them are
/// written at the same time.
pub(crate) struct FragmentFiles(Vec<ColumnFile>);

impl FragmentFiles {
    /// Creates the files for rows with the columns of `schema`. The fields of `lance_schema` are the same columns, with
    /// their ids in the table.
    pub async fn create(
        lake: &LakeInner,
        table: &Path,
        schema: &ArrowSchema,
        lance_schema: &Schema,
        page_bytes: usize,
    ) -> Result<Self> {
        let fields = schema.fields();
        let (heavy, light): (Vec<usize>, Vec<usize>) = (0..fields.len()).partition(|index| is_heavy(&fields[*index]));
        let page_bytes = page_bytes.max(1);
        let mut groups: Vec<_> = heavy.into_iter().map(|index| (vec![index], Some(page_bytes))).collect();
        if !light.is_empty() {
            groups.push((light, None));
        }
        let create = groups.into_iter().map(|(columns, page_bytes)| {
            let schema = file_schema(schema, lance_schema, &columns);
            ColumnFile::create(lake, table, schema, columns, page_bytes)
        });
        Ok(Self(try_join_all(create).await?))
    }

    /// The names of the files.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|file| file.name.clone())
    }

    /// Writes rows, whose columns are those of the schema.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        try_join_all(self.0.iter_mut().map(|file| file.write(batch))).await?;
        Ok(())
    }

    /// Closes the files. Returns for each its manifest entry and its size in bytes.
    pub async fn finish(self) -> Result<Vec<(DataFile, u64)>> {
        try_join_all(self.0.into_iter().map(ColumnFile::finish)).await
    }

    /// Discards the files as far as the store allows.
    pub async fn abort(self) {
        for file in self.0 {
            file.abort().await;
        }
    }
}

/// Returns the schema of a file with these columns: the field ids are the table's, and encoded images are never
/// compressed, whatever the table's schema says. The elements of lists are compressed as the schema says of the lists.
fn file_schema(schema: &ArrowSchema, lance_schema: &Schema, columns: &[usize]) -> Schema {
    let mut fields: Vec<_> = columns.iter().map(|index| lance_schema.fields[*index].clone()).collect();
    for (field, index) in fields.iter_mut().zip(columns) {
        let column = &schema.fields()[*index];
        if let Some(compression) = kind_of(column).storage(column).compression {
            field.metadata.insert(COMPRESSION_KEY.into(), compression.into());
        }
        inherit_compression(field);
    }
    Schema { fields, metadata: Default::default() }
}

/// Gives the leaves of a column its compression: Lance asks the field of the values, which for lists is that of the elements.
fn inherit_compression(field: &mut Field) {
    for key in [COMPRESSION_KEY, COMPRESSION_LEVEL_KEY] {
        let Some(value) = field.metadata.get(key).cloned() else { continue };
        for child in &mut field.children {
            child.metadata.entry(key.into()).or_insert_with(|| value.clone());
        }
    }
    field.children.iter_mut().for_each(inherit_compression);
}

/// A data file that holds some columns of one fragment.
struct ColumnFile {
    name: String,
    schema: Schema,
    batch_schema: SchemaRef,
    /// The indices of the columns in incoming batches.
    columns: Vec<usize>,
    /// Collects the pages of a heavy column, which has a file to itself; `None` for light columns, whose pages Lance
    /// collects.
    pages: Option<PageBuffer>,
    /// For each column, the checksums of its rows so far, as they are stored; `None` for a column without checksums of
    /// rows.
    checksums: Vec<Option<Vec<u8>>>,
    writer: FileWriter,
}

impl ColumnFile {
    /// Creates a file for these columns. With `page_bytes`, it is the file of one heavy column.
    pub async fn create(
        lake: &LakeInner,
        table: &Path,
        schema: Schema,
        columns: Vec<usize>,
        page_bytes: Option<usize>,
    ) -> Result<Self> {
        let is_heavy = page_bytes.is_some();
        let name = if is_heavy { format!("{}.lance", uuid::Uuid::new_v4()) } else { checked_name() };
        let path = table.clone().join("data").join(name.as_str());
        let attempted = || format!("creating data file {name} in {}", lake.place);
        let output = lake.store.create(&path).await.map_err(|source| Error::storage(attempted(), source))?;
        // The rows of a heavy column have checksums of their own, so its bytes need no others.
        let output = match is_heavy {
            true => output,
            false => Box::new(CheckedWriter::new(&name, output, schema.fields_pre_order().count(), columns.len() + 1)),
        };
        // With this threshold, Lance writes each array of a heavy column at once, so that each array of the page buffer
        // becomes exactly one page.
        let cache_bytes = if is_heavy { 1 } else { LIGHT_PAGE_BYTES };
        let options = FileWriterOptions {
            data_cache_bytes: Some(cache_bytes * columns.len() as u64),
            keep_original_array: Some(true),
            ..FileWriterOptions::default()
        };
        let writer = create_writer(LanceFileVersion::V2_2.resolve(), output, schema.clone(), options);
        let writer = writer.map_err(|source| Error::storage(attempted(), source))?;
        let batch_schema = Arc::new(ArrowSchema::from(&schema));
        let pages = page_bytes.map(PageBuffer::new);
        let has_checksums = |field: &FieldRef| is_heavy || may_be_plain(field);
        let checksums = batch_schema.fields().iter().map(|field| has_checksums(field).then(Vec::new)).collect();
        Ok(Self { name, schema, batch_schema, columns, pages, checksums, writer })
    }

    /// Writes this file's columns of a batch.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let Some(pages) = &mut self.pages else {
            let columns: Vec<ArrayRef> = self.columns.iter().map(|column| compact(batch.column(*column))).collect();
            return self.write_rows(columns).await;
        };
        for page in pages.push(batch.column(self.columns[0])).map_err(gathering)? {
            self.write_rows(vec![page]).await?;
        }
        Ok(())
    }

    /// Closes the file. Returns its manifest entry and its size in bytes.
    pub async fn finish(mut self) -> Result<(DataFile, u64)> {
        if let Some(page) = self.pages.as_mut().map(PageBuffer::flush).transpose().map_err(gathering)?.flatten() {
            self.write_rows(vec![page]).await?;
        }
        self.write_checksums().await?;
        let summary = self.writer.finish().await;
        let summary = summary.map_err(|source| Error::storage(format!("closing data file {}", self.name), source))?;
        let (fields, column_indices) = v2_2::data_file_columns(&self.schema);
        let version = LanceFileVersion::V2_2.resolve();
        let size = NonZero::new(summary.size_bytes);
        Ok((DataFile::new(self.name, fields, column_indices, version, size, None), summary.size_bytes))
    }

    pub async fn abort(mut self) {
        self.writer.abort().await;
    }

    /// Adds the rows' checksums to those of the file, and writes the rows.
    async fn write_rows(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        for (checksums, values) in self.checksums.iter_mut().zip(&columns) {
            let both = checksums.take().and_then(|checksums| Some((checksums, row_checksums(values)?)));
            *checksums = both.map(|(mut checksums, of_rows)| {
                checksums.extend(of_rows.into_iter().flat_map(u32::to_le_bytes));
                checksums
            });
        }
        self.write_columns(columns).await
    }

    /// Stores the checksums behind the pages, and their location in the file's metadata.
    async fn write_checksums(&mut self) -> Result<()> {
        let mut buffers = BTreeMap::new();
        for (checksums, field) in std::mem::take(&mut self.checksums).into_iter().zip(&self.schema.fields) {
            let Some(checksums) = checksums.filter(|checksums| !checksums.is_empty()) else { continue };
            let buffer = self.writer.add_global_buffer(checksums.into()).await;
            let buffer = buffer.map_err(|source| Error::storage(format!("writing data file {}", self.name), source))?;
            buffers.insert(field.name.as_str(), buffer);
        }
        if !buffers.is_empty() {
            self.writer.add_schema_metadata(CHECKSUMS_KEY, checksums_entry(&self.name, &buffers));
        }
        Ok(())
    }

    async fn write_columns(&mut self, columns: Vec<ArrayRef>) -> Result<()> {
        let attempted = || format!("writing data file {}", self.name);
        // The schema of the file says more of nested fields than that of the rows: how their values are compressed.
        let batch = retype_columns(&self.batch_schema, &columns);
        let batch = batch.map_err(|source| Error::storage(attempted(), source))?;
        self.writer.write_batch(&batch).await.map_err(|source| Error::storage(attempted(), source))
    }
}

/// Passes on a data file and appends the trailer with the checksums when the file is closed.
struct CheckedWriter {
    output: Box<dyn Writer>,
    trailer: TrailerBuilder,
}

impl CheckedWriter {
    /// Makes a writer of the file `name`, which will have at most `num_columns_max` columns in Lance's sense, one for
    /// each nested field, and at most `num_buffers_max` global buffers.
    fn new(name: &str, output: Box<dyn Writer>, num_columns_max: usize, num_buffers_max: usize) -> Self {
        Self { output, trailer: TrailerBuilder::new(name, num_columns_max, num_buffers_max) }
    }
}

impl AsyncWrite for CheckedWriter {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(self.output.as_mut()).poll_write(context, bytes))?;
        self.trailer.add(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.output.as_mut()).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.output.as_mut()).poll_shutdown(context)
    }
}

#[async_trait::async_trait]
impl Writer for CheckedWriter {
    async fn tell(&mut self) -> lance_core::Result<usize> {
        self.output.tell().await
    }

    async fn shutdown(&mut self) -> lance_core::Result<WriteResult> {
        let trailer = match self.trailer.finish() {
            Ok(trailer) => trailer,
            Err(what) => return Err(lance_core::Error::internal(what)),
        };
        self.output.write_all(&trailer).await?;
        Writer::shutdown(self.output.as_mut()).await
    }
}

fn gathering(source: ArrowError) -> Error {
    Error::storage("gathering a page", source)
}
