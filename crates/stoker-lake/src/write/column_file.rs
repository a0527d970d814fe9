//! One data file of a fragment.

use std::num::NonZero;

use arrow_array::{Array, RecordBatch};
use lance_core::datatypes::Schema;
use lance_file::version::LanceFileVersion;
use lance_file::versions::{create_writer, v2_2};
use lance_file::writer::{FileWriter, FileWriterOptions};
use lance_table::format::DataFile;
use object_store::path::Path;

use crate::lake::LakeInner;
use crate::{Error, Result};

/// Bytes that light columns gather before they become a page.
const LIGHT_PAGE_BYTES: u64 = 1 << 20;

/// A data file that holds some columns of one fragment.
pub(super) struct ColumnFile {
    name: String,
    schema: Schema,
    /// The columns' places in incoming batches.
    pub columns: Vec<usize>,
    writer: FileWriter,
}

impl ColumnFile {
    pub async fn create(
        lake: &LakeInner,
        table: &Path,
        schema: Schema,
        columns: Vec<usize>,
        heavy: bool,
    ) -> Result<Self> {
        let name = format!("{}.lance", uuid::Uuid::new_v4());
        let path = table.clone().join("data").join(name.as_str());
        let attempted = || format!("creating data file {name} in {}", lake.place);
        let output = lake.store.create(&path).await.map_err(|source| Error::storage(attempted(), source))?;
        // A heavy batch passes the threshold at once, so that it becomes exactly one page.
        let page_bytes = if heavy { 1 } else { LIGHT_PAGE_BYTES };
        let options = FileWriterOptions {
            data_cache_bytes: Some(page_bytes * columns.len() as u64),
            ..FileWriterOptions::default()
        };
        let writer = create_writer(LanceFileVersion::V2_2.resolve(), output, schema.clone(), options);
        let writer = writer.map_err(|source| Error::storage(attempted(), source))?;
        Ok(Self { name, schema, columns, writer })
    }

    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let written = self.writer.write_batch(batch).await;
        written.map_err(|source| Error::storage(format!("writing data file {}", self.name), source))
    }

    /// Closes the file. Returns its manifest entry and its size in bytes.
    pub async fn finish(mut self) -> Result<(DataFile, u64)> {
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
}

/// Copies rows of a batch into arrays of their own: the writer's page is then exactly these rows.
pub(super) fn compact(batch: &RecordBatch) -> Result<RecordBatch> {
    let copy = |column: &arrow_array::ArrayRef| {
        let data = column.to_data();
        let mut copy = arrow_data::transform::MutableArrayData::new(vec![&data], false, column.len());
        copy.extend(0, 0, column.len());
        arrow_array::make_array(copy.freeze())
    };
    let columns = batch.columns().iter().map(copy).collect();
    RecordBatch::try_new(batch.schema(), columns).map_err(|source| Error::storage("copying rows", source))
}
