//! Writes the rows of a new table.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat;
use stoker_columns::{CompressedTensor, may_have_dictionaries, with_dictionaries};
use stoker_lake::{LakeStore, TableWriter, WriteOptions};
use stoker_types::TableName;

use super::assignment::{RowNames, assign_all};
use crate::{Error, Result};

/// The rows of a new table. Where columns of small compressed tensors may get dictionaries, these are made of the first rows,
/// and the files are begun then.
pub(crate) struct NewTableWriter {
    lake: LakeStore,
    name: TableName,
    /// The kind of statement, for messages.
    kind: &'static str,
    columns: SchemaRef,
    /// The columns whose frames are made again, with a dictionary, by their index: as they were without it.
    renewed: Vec<Option<CompressedTensor>>,
    /// `None` until there are enough rows, where dictionaries are made of them.
    writer: Option<TableWriter>,
    /// The rows until then, and their bytes.
    first: Vec<FirstRows>,
    first_bytes: usize,
}

/// Rows that wait for the files to be begun.
struct FirstRows {
    sources: Vec<Option<usize>>,
    values: Vec<ArrayRef>,
    num_rows: usize,
    first_row: u64,
}

/// The number of rows of which dictionaries are made. Queries return rows with large values some dozens at a time.
const FIRST_ROWS: usize = 1_024;

/// The bytes of rows that wait at most.
const FIRST_BYTES_MAX: usize = 16 << 20;

impl NewTableWriter {
    /// Begins a table with these columns.
    ///
    /// # Errors
    /// Columns that a table cannot have; storage errors.
    pub async fn begin(lake: &LakeStore, name: &TableName, kind: &'static str, columns: SchemaRef) -> Result<Self> {
        let renewed = vec![None; columns.fields().len()];
        let waits = may_have_dictionaries(&columns);
        let (lake, name) = (lake.clone(), name.clone());
        let mut begun = Self { lake, name, kind, columns, renewed, writer: None, first: Vec::new(), first_bytes: 0 };
        if !waits {
            begun.open().await?;
        }
        Ok(begun)
    }

    /// The columns of the table.
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// Writes rows, the first of which has the number `first_row`. `sources` tells for each column of the table the index of
    /// its values in `values`; it is the same for all rows.
    ///
    /// # Errors
    /// A value that does not fit, with its column and row; storage errors.
    pub async fn write(
        &mut self,
        sources: &[Option<usize>],
        values: &[ArrayRef],
        num_rows: usize,
        first_row: u64,
    ) -> Result<()> {
        if self.writer.is_some() {
            return self.assign(sources, values, num_rows, first_row).await;
        }
        if num_rows > 0 {
            self.first_bytes += values.iter().map(|array| array.get_array_memory_size()).sum::<usize>();
            self.first.push(FirstRows { sources: sources.to_vec(), values: values.to_vec(), num_rows, first_row });
        }
        let num_rows: usize = self.first.iter().map(|rows| rows.num_rows).sum();
        if num_rows >= FIRST_ROWS || self.first_bytes >= FIRST_BYTES_MAX { self.open().await } else { Ok(()) }
    }

    /// Writes rows of a table whose files are begun.
    async fn assign(
        &mut self,
        sources: &[Option<usize>],
        values: &[ArrayRef],
        num_rows: usize,
        first_row: u64,
    ) -> Result<()> {
        let mut values = values.to_vec();
        for (renewed, source) in self.renewed.iter().zip(sources) {
            if let (Some(tensor), Some(place)) = (renewed, source.and_then(|source| values.get_mut(source))) {
                *place = self.tensors(tensor, place)?;
            }
        }
        let rows = RowNames::From(first_row);
        let batch = assign_all(self.kind, &self.columns, sources, &values, num_rows, rows)?;
        match &mut self.writer {
            Some(writer) => Ok(writer.write(&batch).await?),
            None => Err(Error::internal("a new table without a writer")),
        }
    }

    /// Returns the writer of all rows.
    ///
    /// # Errors
    /// Storage errors.
    pub async fn into_writer(mut self) -> Result<TableWriter> {
        if self.writer.is_none() {
            self.open().await?;
        }
        self.writer.ok_or_else(|| Error::internal("a new table without a writer"))
    }

    /// Discards the rows.
    pub async fn abort(self) {
        if let Some(writer) = self.writer {
            writer.abort().await;
        }
    }

    /// Begins the files, with dictionaries that are made of the rows so far, and writes these.
    async fn open(&mut self) -> Result<()> {
        let first = std::mem::take(&mut self.first);
        if let Some(FirstRows { sources, values, .. }) = first.first() {
            let joined = |place: usize| {
                let parts = first.iter().filter_map(|rows| rows.values.get(place).map(AsRef::as_ref));
                concat(&parts.collect::<Vec<&dyn Array>>()).map_err(|source| Error::internal(source.to_string()))
            };
            let joined = (0..values.len()).map(joined).collect::<Result<Vec<_>>>()?;
            self.make_dictionaries(sources, &joined)?;
        }
        self.writer = Some(self.lake.writer(&self.name, &self.columns, false, WriteOptions::default()).await?);
        for FirstRows { sources, values, num_rows, first_row } in first {
            self.assign(&sources, &values, num_rows, first_row).await?;
        }
        Ok(())
    }

    /// Gives columns of small compressed tensors dictionaries, which are made of the first rows. A column that is copied has
    /// frames, of which tensors are made for that.
    fn make_dictionaries(&mut self, sources: &[Option<usize>], values: &[ArrayRef]) -> Result<()> {
        let num_rows = values.first().map_or(0, |array| array.len());
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let mut frames = vec![None; self.columns.fields().len()];
        for (index, field) in self.columns.fields().iter().enumerate() {
            let found = sources.get(index).copied().flatten().and_then(|source| values.get(source));
            // Columns that get no dictionary do not matter here.
            let mut column = found.cloned().unwrap_or_else(|| arrow_array::new_null_array(field.data_type(), num_rows));
            if is_frames(column.data_type())
                && may_have_dictionaries(&Schema::new(vec![field.clone()]))
                && let Some(tensor) = CompressedTensor::try_of(field).ok().flatten()
            {
                column = self.tensors(&tensor, &column)?;
                frames[index] = Some(tensor);
            }
            fields.push(Field::new(field.name(), column.data_type().clone(), true));
            columns.push(column);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(num_rows));
        let first = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options);
        let first = first.map_err(|source| Error::internal(source.to_string()))?;
        let shared = with_dictionaries(&self.columns, &first);
        for (index, tensor) in frames.into_iter().enumerate() {
            if shared.fields().get(index) != self.columns.fields().get(index) {
                self.renewed[index] = tensor;
            }
        }
        self.columns = shared;
        Ok(())
    }

    /// Returns the tensors of frames.
    fn tensors(&self, tensor: &CompressedTensor, frames: &ArrayRef) -> Result<ArrayRef> {
        let binary = cast(frames, &DataType::LargeBinary).map_err(|source| Error::internal(source.to_string()))?;
        let tensors = tensor.decompress(&binary);
        tensors.map_err(|wrong| Error::refused(format!("{} {}", self.kind, self.name), wrong.to_string()))
    }
}

fn is_frames(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}
