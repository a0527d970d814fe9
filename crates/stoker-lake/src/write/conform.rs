//! Fits record batches to the schema of a table.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_schema::{DataType, Field, SchemaRef};
use stoker_types::{TableName, fixed_row_bytes, is_heavy};

use crate::{Error, Result};

/// The batch with the columns, types and field metadata of `schema`; no values are copied.
///
/// `first_row` is the number of its first row, for messages.
pub(super) fn conform(
    table: &TableName,
    schema: &SchemaRef,
    batch: &RecordBatch,
    first_row: u64,
) -> Result<RecordBatch> {
    let fail = |reason: String| Error::InvalidData { table: table.to_string(), reason };
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(fail(format!("column {} is missing", field.name())));
        };
        if !column.data_type().equals_datatype(field.data_type()) {
            let types = (field.data_type(), column.data_type());
            return Err(fail(format!("column {} should be {}, not {}", field.name(), types.0, types.1)));
        }
        if let Some(row) = forbidden_null(field, column) {
            let row = first_row + row as u64;
            return Err(fail(format!("column {} must not have nulls, but row {row} has one", field.name())));
        }
        let column = column.to_data().into_builder().data_type(field.data_type().clone()).build();
        columns.push(make_array(column.map_err(|source| fail(format!("column {}: {source}", field.name())))?));
    }
    if let Some(extra) = batch.schema().fields().iter().find(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(fail(format!("the table has no column {}", extra.name())));
    }
    RecordBatch::try_new(schema.clone(), columns).map_err(|source| fail(source.to_string()))
}

/// The first row with a null where none may be: in a non-null column, and anywhere in a heavy fixed-width one, where a
/// single null would make a page unreadable without a decoder.
fn forbidden_null(field: &Field, column: &ArrayRef) -> Option<usize> {
    let dense = is_heavy(field) && fixed_row_bytes(field.data_type()).is_some();
    if (!field.is_nullable() || dense) && column.null_count() > 0 {
        return (0..column.len()).find(|row| column.is_null(*row));
    }
    if !dense {
        return None;
    }
    let (mut items, mut items_per_row) = (column.clone(), 1usize);
    while let DataType::FixedSizeList(_, length) = items.data_type().clone() {
        items = items.as_fixed_size_list().values().clone();
        items_per_row *= usize::try_from(length).unwrap_or(0).max(1);
        if items.null_count() > 0 {
            return (0..items.len()).find(|item| items.is_null(*item)).map(|item| item / items_per_row);
        }
    }
    None
}
