//! Converts the values of columns.

use std::path::Path;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use stoker_columns::Mismatch;

use super::column::Columns;
use crate::{Error, Result};

/// Converts a record batch of a file to the schema of the table. `first_row` is the index in the file of its first row,
/// for messages.
pub(super) fn convert(
    columns: &Columns,
    schema: &SchemaRef,
    batch: &RecordBatch,
    path: &Path,
    first_row: u64,
) -> Result<RecordBatch> {
    let mut arrays = Vec::with_capacity(columns.0.len());
    for column in &columns.0 {
        let name = column.field.name();
        let fail = |Mismatch { row, expected, found }| {
            let row = row.map(|row| first_row + row as u64);
            Error::Mismatch { path: path.to_path_buf(), row, column: name.clone(), expected, found }
        };
        let Some(array) = batch.column_by_name(name) else {
            let (expected, found) = ("the columns of the first file".into(), "no such column".into());
            return Err(fail(Mismatch { row: None, expected, found }));
        };
        arrays.push(column.conversion.convert(&column.field, array).map_err(fail)?);
    }
    RecordBatch::try_new(schema.clone(), arrays)
        .map_err(|source| Error::internal(format!("converting rows of {}", path.display()), source))
}
