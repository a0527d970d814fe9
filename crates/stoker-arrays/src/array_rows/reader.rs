//! Reads the rows of arrays that lie side by side.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arrow::compute::filter_record_batch;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use stoker_columns::tensor::shape_label;
use stoker_types::to_usize;

use super::{ArrayBlock, ArrayColumn, ROW_BYTES_MAX};
use crate::{Error, Result};
use stoker_files::{BadRow, RowBatch, RowReader};

/// The number of arrays, and of numbers of rows, that a message shows.
const NAMES_SHOWN: usize = 4;

/// Reads the rows of arrays that lie side by side, and have the same number of rows.
pub(crate) struct ArrayReader {
    /// The name of the file, for messages.
    file: String,
    blocks: Vec<ArrayBlock>,
    schema: SchemaRef,
    /// For each column of the schema, its index among the columns of the blocks.
    order: Vec<usize>,
    num_rows: u64,
    next_row: u64,
}

impl ArrayReader {
    /// Begins with the first row of blocks.
    ///
    /// # Errors
    /// [`Error::Malformed`] without columns, for arrays that differ in the number of rows, and for rows that are too large
    /// with all arrays; [`Error::Column`] for two columns with one name.
    pub fn try_new(file: &str, blocks: Vec<ArrayBlock>) -> Result<Self> {
        let fields: Vec<Field> = blocks.iter().flat_map(|block| &block.columns).map(ArrayColumn::field).collect();
        if fields.is_empty() {
            return Err(Error::malformed(file, "it has no arrays"));
        }
        check_num_rows(file, &blocks)?;
        let row_bytes = row_bytes(&blocks);
        if row_bytes > ROW_BYTES_MAX {
            let reason = format!(
                "a row of all {} arrays has {row_bytes} bytes; the most are {ROW_BYTES_MAX}: save fewer arrays in one file",
                blocks.len()
            );
            return Err(Error::malformed(file, reason));
        }
        let mut names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.windows(2).find(|pair| pair.first() == pair.last()) {
            let reason = "two arrays have this name; give each its own".into();
            return Err(Error::Column { file: file.into(), column: name.to_string(), reason });
        }
        Ok(Self {
            file: file.into(),
            num_rows: blocks.iter().map(|block| block.num_rows).min().unwrap_or(0),
            order: (0..fields.len()).collect(),
            schema: Arc::new(Schema::new(fields)),
            blocks,
            next_row: 0,
        })
    }

    /// Returns the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a reader that gives the columns in the order of a schema, which the file `first` has.
    ///
    /// # Errors
    /// [`Error::Column`] for a column that is missing, is not in the schema, or has another type.
    pub fn arranged(mut self, schema: &SchemaRef, first: &str) -> Result<Self> {
        let fail = |column: &str, reason: String| {
            Err(Error::Column { file: self.file.clone(), column: column.into(), reason })
        };
        let own: BTreeMap<&str, usize> =
            self.schema.fields().iter().zip(0..).map(|(field, index)| (field.name().as_str(), index)).collect();
        let mut order = Vec::with_capacity(own.len());
        for field in schema.fields() {
            let Some(index) = own.get(field.name().as_str()) else {
                return fail(field.name(), format!("the column is missing, which {first} has"));
            };
            let found = self.schema.field(*index);
            if found != field.as_ref() {
                return fail(field.name(), format!("is {}, but {} in {first}", described(found), described(field)));
            }
            order.push(*index);
        }
        if let Some(more) = own.keys().find(|name| schema.field_with_name(name).is_err()) {
            return fail(more, format!("{first} does not have this column"));
        }
        self.order = order;
        self.schema = schema.clone();
        Ok(self)
    }

    fn defect(&self, error: &ArrowError) -> Error {
        Error::malformed(&self.file, format!("rows from {} on could not become a batch: {error}", self.next_row))
    }

    fn unreadable(&self, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::InvalidData => {
                Error::malformed(&self.file, format!("rows from {} on are damaged: {source}", self.next_row))
            }
            _ => Error::read(&self.file, source),
        }
    }
}

/// Returns the bytes of a row in all blocks.
fn row_bytes(blocks: &[ArrayBlock]) -> usize {
    blocks.iter().fold(0, |sum, block| sum.saturating_add(block.row_bytes))
}

/// Checks that blocks have the same number of rows.
fn check_num_rows(file: &str, blocks: &[ArrayBlock]) -> Result<()> {
    let mut numbers: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for block in blocks {
        let names = block.columns.iter().map(|column| column.name.as_str());
        numbers.entry(block.num_rows).or_default().extend(names);
    }
    if numbers.len() <= 1 {
        return Ok(());
    }
    let shown = |names: &[&str]| {
        let more = names.len().saturating_sub(NAMES_SHOWN);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let names: Vec<&str> = names.iter().copied().take(NAMES_SHOWN).collect();
        format!("{}{more}", names.join(", "))
    };
    let groups: Vec<String> =
        numbers.iter().take(NAMES_SHOWN).map(|(rows, names)| format!("{rows} in {}", shown(names))).collect();
    let more = if numbers.len() > NAMES_SHOWN { ", and others" } else { "" };
    let reason = format!(
        "the first dimension of each array is the rows, and they differ: {}{more}; keep the arrays with one number of rows, \
         and save the others to files of their own",
        groups.join("; ")
    );
    Err(Error::malformed(file, reason))
}

/// Returns the type of a column, for messages.
fn described(field: &Field) -> String {
    shape_label(field).unwrap_or_else(|| field.data_type().to_string())
}

impl RowReader for ArrayReader {
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        let left = to_usize(self.num_rows.saturating_sub(self.next_row));
        if left == 0 {
            return Ok(None);
        }
        let count = (bytes_max / row_bytes(&self.blocks).max(1)).clamp(1, left);
        let (mut columns, mut bad): (Vec<ArrayRef>, BTreeMap<usize, String>) = Default::default();
        let mut source_bytes = 0u64;
        for index in 0..self.blocks.len() {
            let Some(block) = self.blocks.get_mut(index) else { continue };
            let mut rows = MutableBuffer::from_len_zeroed(count.saturating_mul(block.row_bytes));
            match block.source.fill(rows.as_slice_mut()) {
                Ok(bytes) => source_bytes = source_bytes.saturating_add(bytes),
                Err(error) => return Err(self.unreadable(error)),
            }
            let (rows, row_bytes) = (Buffer::from(rows), block.row_bytes);
            let decoded: Result<Vec<_>, _> =
                block.columns.iter().map(|column| column.decode(&rows, row_bytes)).collect();
            for column in decoded.map_err(|error| self.defect(&error))? {
                columns.push(column.array);
                for (row, reason) in column.bad {
                    bad.entry(row).or_insert(reason);
                }
            }
        }
        let columns = self.order.iter().filter_map(|index| columns.get(*index).cloned()).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options);
        let batch = batch.and_then(|batch| without_rows(batch, &bad)).map_err(|error| self.defect(&error))?;
        let first = self.next_row;
        self.next_row = first.saturating_add(count as u64);
        let bad = bad.into_iter().map(|(row, reason)| BadRow { row: first.saturating_add(row as u64), reason });
        Ok(Some(RowBatch { batch, bad: bad.collect(), source_bytes }))
    }
}

/// Returns a batch without the rows that are bad.
fn without_rows(batch: RecordBatch, bad: &BTreeMap<usize, String>) -> Result<RecordBatch, ArrowError> {
    if bad.is_empty() {
        return Ok(batch);
    }
    let is_good: BooleanArray = (0..batch.num_rows()).map(|row| Some(!bad.contains_key(&row))).collect();
    filter_record_batch(&batch, &is_good)
}
