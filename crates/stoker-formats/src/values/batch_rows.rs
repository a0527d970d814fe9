//! Collects rows until they are a batch.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, Field, SchemaRef};
use arrow_select::filter::filter_record_batch;
use stoker_columns::{Mismatch, encoded_video, kind_of, video_index_of};

use super::value_builder::ValueBuilder;
use super::{BATCH_BYTES_MAX, FieldValue};
use crate::{BadRow, Error, Result, RowBatch};

/// The bytes that a row takes in each column beside its value.
const VALUE_BYTES: usize = 16;
/// The bytes that a bad row takes beside its reason.
const BAD_ROW_BYTES: usize = 64;
/// The most bytes of bad rows that are collected without a good one.
const BAD_BYTES_MAX: usize = 1 << 20;

/// The rows of the next batch of a file.
#[derive(Debug)]
pub(crate) struct BatchRows {
    file: String,
    schema: SchemaRef,
    builders: Vec<ValueBuilder>,
    /// The column whose texts name rows in messages.
    key: Option<usize>,
    /// The number of each row in its file.
    rows: Vec<u64>,
    bad: Vec<BadRow>,
    bytes: usize,
    bad_bytes: usize,
    /// The bytes of the file that earlier batches counted.
    counted: u64,
}

impl BatchRows {
    /// Makes a batch without rows. `key` is the column whose texts name rows.
    ///
    /// # Errors
    /// [`Error::Column`] for a type that formats do not have.
    pub fn new(file: &str, schema: &SchemaRef, key: Option<usize>) -> Result<Self> {
        let builder = |field: &Arc<Field>| {
            ValueBuilder::try_new(field).map_err(|error| {
                let (column, reason) = (field.name().clone(), error.to_string());
                Error::Column { file: file.into(), column, reason }
            })
        };
        Ok(Self {
            file: file.to_string(),
            schema: schema.clone(),
            builders: schema.fields().iter().map(builder).collect::<Result<_>>()?,
            key,
            rows: Vec::new(),
            bad: Vec::new(),
            bytes: 0,
            bad_bytes: 0,
            counted: 0,
        })
    }

    /// Adds a row, with a value for each column.
    pub fn push(&mut self, row: u64, values: &[FieldValue<'_>]) {
        for (builder, value) in self.builders.iter_mut().zip(values) {
            builder.push(value);
            self.bytes += VALUE_BYTES + value.num_bytes();
        }
        self.rows.push(row);
    }

    /// Leaves out a row.
    pub fn refuse(&mut self, row: u64, reason: String) {
        self.bad_bytes += BAD_ROW_BYTES + reason.len();
        self.bad.push(BadRow { row, reason });
    }

    /// Whether the rows are enough for a batch of about `bytes_max` bytes.
    pub fn is_full(&self, bytes_max: usize) -> bool {
        (!self.rows.is_empty() && self.bytes >= bytes_max.min(BATCH_BYTES_MAX)) || self.bad_bytes >= BAD_BYTES_MAX
    }

    /// Whether there are neither good nor bad rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.bad.is_empty()
    }

    /// Returns the rows, after the files of columns of media were checked, and begins anew. `position` is the number of
    /// bytes of the file that were read so far. The batch may have bad rows only.
    ///
    /// # Errors
    /// [`Error::Malformed`] if the columns do not fit the schema.
    pub fn take(&mut self, position: u64) -> Result<RowBatch> {
        let wrong = |error: ArrowError| Error::malformed(&self.file, error);
        let columns = self.builders.iter_mut().map(ValueBuilder::finish);
        let columns = columns.collect::<Result<Vec<ArrayRef>, ArrowError>>().map_err(wrong)?;
        let batch = RecordBatch::try_new(self.schema.clone(), columns).map_err(wrong)?;
        let rows = std::mem::take(&mut self.rows);
        let mut bad = std::mem::take(&mut self.bad);
        let mut good = vec![true; rows.len()];
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            for (index, mismatch) in wrong_files(field, column) {
                let (Some(is_good), Some(row)) = (good.get_mut(index), rows.get(index)) else { continue };
                if std::mem::replace(is_good, false) {
                    let key = self.key.and_then(|key| batch.column(key).as_string_opt::<i32>());
                    let key = key.map_or(String::new(), |keys| format!("{}, ", keys.value(index)));
                    bad.push(BadRow { row: *row, reason: format!("{key}column {}: {mismatch}", field.name()) });
                }
            }
        }
        bad.sort_by_key(|bad| bad.row);
        let batch = match good.contains(&false) {
            true => filter_record_batch(&batch, &BooleanArray::new(BooleanBuffer::from(good), None)).map_err(wrong)?,
            false => batch,
        };
        let source_bytes = position.saturating_sub(self.counted);
        (self.bytes, self.bad_bytes, self.counted) = (0, 0, position);
        Ok(RowBatch { batch, bad, source_bytes })
    }
}

/// Returns the values that are not the files that their column says, with their rows.
fn wrong_files(field: &Field, column: &ArrayRef) -> Vec<(usize, Mismatch)> {
    let (mut wrong, mut start) = (Vec::new(), 0);
    while let Some(Err(mismatch)) = column.len().checked_sub(start).map(|rest| check(field, &column.slice(start, rest)))
    {
        let index = start + mismatch.row.unwrap_or(0);
        wrong.push((index, mismatch));
        start = index + 1;
    }
    wrong
}

fn check(field: &Field, column: &ArrayRef) -> Result<(), Mismatch> {
    match video_index_of(field) {
        Some(_) => encoded_video::declared(field).conversion.convert(field, column).map(drop),
        None => kind_of(field).check(field, column),
    }
}
