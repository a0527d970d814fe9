//! Writes the rows of a new table.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
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
    first: Vec<NewRows>,
    first_bytes: usize,
}

/// Rows of a new table.
pub(crate) struct NewRows {
    /// For each column of the table the index of its values. It is the same for all rows of a table.
    pub sources: Vec<Option<usize>>,
    /// Arrays of `num_rows` values.
    pub values: Vec<ArrayRef>,
    pub num_rows: usize,
    /// The number of rows before these, for messages.
    pub first_row: u64,
}

impl NewRows {
    /// Returns the values of a column of the table, which is named by its index; `None` if the rows have none.
    fn values_of(&self, column: usize) -> Option<&ArrayRef> {
        self.values.get(self.sources.get(column).copied().flatten()?)
    }
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

    /// Writes rows.
    ///
    /// # Errors
    /// A value that does not fit, with its column and row; storage errors.
    pub async fn write(&mut self, rows: NewRows) -> Result<()> {
        if self.writer.is_some() {
            return self.assign(rows).await;
        }
        if rows.num_rows > 0 {
            self.first_bytes += rows.values.iter().map(|array| array.get_array_memory_size()).sum::<usize>();
            self.first.push(rows);
        }
        let num_rows: usize = self.first.iter().map(|rows| rows.num_rows).sum();
        if num_rows >= FIRST_ROWS || self.first_bytes >= FIRST_BYTES_MAX { self.open().await } else { Ok(()) }
    }

    /// Writes rows of a table whose files are begun.
    async fn assign(&mut self, mut rows: NewRows) -> Result<()> {
        for (renewed, source) in self.renewed.iter().zip(&rows.sources) {
            if let (Some(tensor), Some(place)) = (renewed, source.and_then(|source| rows.values.get_mut(source))) {
                *place = self.tensors(tensor, place)?;
            }
        }
        let NewRows { sources, values, num_rows, first_row } = &rows;
        let names = RowNames::From(*first_row);
        let batch = assign_all(self.kind, &self.columns, sources, values, *num_rows, names)?;
        match &mut self.writer {
            Some(writer) => Ok(writer.write(&batch).await?),
            None => Err(Error::internal("a new table without a writer")),
        }
    }

    /// Returns the writer of all rows.
    ///
    /// # Errors
    /// As for [`NewTableWriter::write`]. The rows are discarded then.
    pub async fn into_writer(mut self) -> Result<TableWriter> {
        if self.writer.is_none()
            && let Err(error) = self.open().await
        {
            self.abort().await;
            return Err(error);
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
        self.make_dictionaries(&first)?;
        self.writer = Some(self.lake.writer(&self.name, &self.columns, false, WriteOptions::default()).await?);
        for rows in first {
            self.assign(rows).await?;
        }
        Ok(())
    }

    /// Gives columns of small compressed tensors dictionaries, which are made of these rows. A column that is copied has
    /// frames, of which tensors are made for that.
    fn make_dictionaries(&mut self, rows: &[NewRows]) -> Result<()> {
        let internal = |source: ArrowError| Error::internal(source.to_string());
        let mut fields: Vec<FieldRef> = self.columns.fields().to_vec();
        for (index, field) in fields.iter_mut().enumerate() {
            let target = Schema::new(vec![field.clone()]);
            let parts = rows.iter().filter_map(|rows| rows.values_of(index).map(AsRef::as_ref));
            let parts = parts.collect::<Vec<&dyn Array>>();
            if parts.is_empty() || !may_have_dictionaries(&target) {
                continue;
            }
            let (mut column, mut frames) = (concat(&parts).map_err(internal)?, None);
            if is_frames(column.data_type())
                && let Some(tensor) = CompressedTensor::try_of(field).ok().flatten()
            {
                column = self.tensors(&tensor, &column)?;
                frames = Some(tensor);
            }
            let first = RecordBatch::try_from_iter([(field.name(), column)]).map_err(internal)?;
            let shared = with_dictionaries(&target, &first);
            if let Some(made) = shared.fields().first()
                && *made != *field
            {
                self.renewed[index] = frames;
                *field = made.clone();
            }
        }
        self.columns = Arc::new(Schema::new_with_metadata(fields, self.columns.metadata().clone()));
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
