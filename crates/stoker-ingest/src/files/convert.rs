//! Converts rows of files to rows of the table, and finds the rows that do not fit.

use std::path::Path;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use stoker_columns::{Mismatch, kind_of};

use super::columns::{FileColumn, FileColumns};
use crate::{Error, Result};

/// Rows of the table, and the rows of the same batch of a file that do not fit.
pub(super) struct ConvertedRows {
    pub batch: RecordBatch,
    /// The index in the batch of the file, ascending, and the reason.
    pub bad: Vec<(usize, String)>,
}

/// Why no row of a batch can be converted: the column, and what is wrong with it.
pub(super) struct WrongColumn {
    pub column: String,
    pub reason: String,
}

/// Converts a batch of a file. Each value is converted once; only where one does not fit, the rows of its column are
/// converted one by one.
///
/// # Errors
/// A column with other values than the plan of the columns says.
pub(super) fn convert(
    columns: &FileColumns,
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> Result<ConvertedRows, WrongColumn> {
    let mut bad: Vec<Option<String>> = vec![None; batch.num_rows()];
    match convert_columns(columns, schema, batch) {
        Ok(batch) => return Ok(ConvertedRows { batch, bad: Vec::new() }),
        Err(_) if batch.num_rows() > 0 => {
            for column in &columns.0 {
                find_bad(column, batch, &mut bad)?;
            }
        }
        Err(wrong) => return Err(wrong),
    }
    let is_good = BooleanArray::from_iter(bad.iter().map(|reason| Some(reason.is_none())));
    let good = filter_record_batch(batch, &is_good).map_err(|error| internal(&error))?;
    let batch = convert_columns(columns, schema, &good)?;
    let bad = bad.into_iter().enumerate().filter_map(|(row, reason)| Some((row, reason?))).collect();
    Ok(ConvertedRows { batch, bad })
}

fn convert_columns(columns: &FileColumns, schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, WrongColumn> {
    let mut arrays = Vec::with_capacity(columns.0.len());
    for column in &columns.0 {
        let array = convert_column(column, of_file(column, batch)?);
        arrays.push(array.map_err(|wrong| column.wrong(wrong.to_string()))?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), arrays, &options).map_err(|error| internal(&error))
}

/// Adds the rows whose value in a column does not fit. The first reason of each row stays.
fn find_bad(column: &FileColumn, batch: &RecordBatch, bad: &mut [Option<String>]) -> Result<(), WrongColumn> {
    let array = of_file(column, batch)?;
    if convert_column(column, array).is_ok() {
        return Ok(());
    }
    for (row, reason) in bad.iter_mut().enumerate().filter(|(_, reason)| reason.is_none()) {
        if let Err(wrong) = convert_column(column, &array.slice(row, 1)) {
            let Mismatch { expected, found, .. } = wrong;
            *reason = Some(format!("column {}: expected {expected}, found {found}", column.name));
        }
    }
    Ok(())
}

/// Converts the values of a column, and checks that the table can have them.
fn convert_column(column: &FileColumn, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
    let field = &column.ingest.field;
    let converted = column.ingest.conversion.convert(field, array)?;
    if !field.is_nullable()
        && let Some(nulls) = converted.logical_nulls().filter(|nulls| nulls.null_count() > 0)
    {
        let row = nulls.iter().position(|is_valid| !is_valid);
        return Err(Mismatch { row, expected: "a value".into(), found: "null".into() });
    }
    kind_of(field).check(field, &converted)?;
    if converted.data_type() != field.data_type() {
        let (expected, found) = (field.data_type().to_string(), converted.data_type().to_string());
        return Err(Mismatch { row: None, expected, found });
    }
    Ok(converted)
}

fn of_file<'a>(column: &FileColumn, batch: &'a RecordBatch) -> Result<&'a ArrayRef, WrongColumn> {
    let schema = batch.schema_ref();
    let is_there = schema.fields().get(column.index).is_some_and(|field| *field.name() == column.name);
    let array = if is_there { batch.columns().get(column.index) } else { batch.column_by_name(&column.name) };
    array.ok_or_else(|| column.wrong("the file has no such column".into()))
}

impl FileColumn {
    fn wrong(&self, reason: String) -> WrongColumn {
        WrongColumn { column: self.name.clone(), reason }
    }
}

fn internal(error: &ArrowError) -> WrongColumn {
    WrongColumn { column: "of the batch".into(), reason: error.to_string() }
}

impl WrongColumn {
    /// Returns the error for a file.
    pub fn of(self, path: &Path) -> Error {
        Error::Column { path: path.to_path_buf(), column: self.column, reason: self.reason }
    }
}
