//! Adapts record batches to the schema of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, make_array};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use stoker_columns::{CompressedTensor, LossyColumn, index_columns, kind_of, video_indexes};

use crate::table_columns::same_data_type;

/// Returns the batch with the columns, types and field metadata of `schema`. Tensors are compressed where the table has them
/// compressed; no other values are copied. Indexes of videos are computed, whether or not the batch has some.
///
/// `first_row` is the number of the batch's first row, for error messages.
///
/// # Errors
/// The reason, with column and row, for rows that the table cannot have.
pub fn conform(schema: &SchemaRef, batch: &RecordBatch, first_row: u64) -> Result<RecordBatch, String> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    let indexed: BTreeMap<&str, &str> = index_columns(schema).collect();
    for field in schema.fields() {
        if let Some(video) = indexed.get(field.name().as_str()) {
            columns.push(video_indexes(batch, video).map_err(|wrong| {
                let row = wrong.row.map_or_else(String::new, |row| format!(", row {}", first_row + row as u64));
                format!("column {video}{row}: {wrong}")
            })?);
            continue;
        }
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(format!("column {} is missing", field.name()));
        };
        let compressed = compressed(field, column, first_row)?;
        let column = compressed.as_ref().unwrap_or(column);
        if !same_data_type(field.data_type(), column.data_type()) {
            let types = (field.data_type(), column.data_type());
            return Err(format!("column {} should be {}, not {}", field.name(), types.0, types.1));
        }
        if let Some(row) = forbidden_null(field, column) {
            let row = first_row + row as u64;
            return Err(format!("column {} must not have nulls, but row {row} has one", field.name()));
        }
        let column = retyped(column, field.data_type());
        columns.push(column.map_err(|source| format!("column {}: {source}", field.name()))?);
    }
    if let Some(extra) = batch.schema().fields().iter().find(|field| schema.field_with_name(field.name()).is_err()) {
        return Err(format!("the table has no column {}", extra.name()));
    }
    RecordBatch::try_new(schema.clone(), columns).map_err(|source| source.to_string())
}

/// Replaces the values of lossy columns by what these columns hold, and notes the largest error of each. `first_row` is as for
/// [`conform`].
///
/// # Errors
/// The reason, with column and row, for values that such a column cannot hold.
pub fn with_losses(
    schema: &SchemaRef,
    batch: &RecordBatch,
    first_row: u64,
    losses: &mut BTreeMap<String, f64>,
) -> Result<RecordBatch, String> {
    let mut batch = batch.clone();
    for field in schema.fields() {
        let (Some(lossy), Ok(index)) = (LossyColumn::of(field), batch.schema().index_of(field.name())) else {
            continue;
        };
        let converted = lossy.convert(field, batch.column(index)).map_err(|wrong| {
            let row = wrong.row.map_or_else(String::new, |row| format!(", row {}", first_row + row as u64));
            format!("column {}{row}: {wrong}", field.name())
        })?;
        let Some((values, error)) = converted else { continue };
        let known = losses.entry(field.name().clone()).or_insert(error);
        *known = known.max(error);
        let mut fields = batch.schema().fields().to_vec();
        fields[index] = Arc::new(field.as_ref().clone().with_data_type(values.data_type().clone()).with_nullable(true));
        let mut columns = batch.columns().to_vec();
        columns[index] = values;
        let replaced = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
        batch = replaced.map_err(|source| source.to_string())?;
    }
    Ok(batch)
}

/// Returns the frames of tensors, if the table has them compressed.
fn compressed(field: &Field, column: &ArrayRef, first_row: u64) -> Result<Option<ArrayRef>, String> {
    let DataType::FixedSizeList(..) = column.data_type() else { return Ok(None) };
    let fail = |reason: String| format!("column {}{reason}", field.name());
    let Some(tensor) = CompressedTensor::try_of(field).map_err(|reason| fail(format!(": {reason}")))? else {
        return Ok(None);
    };
    let frames = tensor.compress(column).map_err(|wrong| {
        let row = wrong.row.map_or_else(String::new, |row| format!(", row {}", first_row + row as u64));
        fail(format!("{row}: {wrong}"))
    });
    frames.map(Some)
}

/// Returns the first columns of a batch of stored rows with exactly the types of `schema`; no values are copied.
///
/// # Errors
/// Types that differ in more than the names, the nullability and the metadata of nested fields.
pub fn retype(schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    retype_columns(schema, batch.columns())
}

/// Returns columns as a batch with exactly the types of `schema`; no values are copied.
///
/// # Errors
/// As for [`retype`].
pub fn retype_columns(schema: &SchemaRef, columns: &[ArrayRef]) -> Result<RecordBatch, ArrowError> {
    let columns = schema.fields().iter().zip(columns);
    let columns: Vec<ArrayRef> =
        columns.map(|(field, column)| retyped(column, field.data_type())).collect::<Result<_, _>>()?;
    RecordBatch::try_new(schema.clone(), columns)
}

/// Returns the same values with the names, the nullability and the metadata that nested fields have in `to`.
fn retyped(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == to { Ok(column.clone()) } else { retyped_data(&column.to_data(), to).map(make_array) }
}

fn retyped_data(data: &ArrayData, to: &DataType) -> Result<ArrayData, ArrowError> {
    if data.data_type() == to {
        return Ok(data.clone());
    }
    let types: Vec<&DataType> = match to {
        DataType::FixedSizeList(item, _)
        | DataType::List(item)
        | DataType::LargeList(item)
        | DataType::Map(item, _) => {
            vec![item.data_type()]
        }
        DataType::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        _ => return data.clone().into_builder().data_type(to.clone()).build(),
    };
    let children: Result<Vec<_>, _> =
        data.child_data().iter().zip(types).map(|(child, to)| retyped_data(child, to)).collect();
    data.clone().into_builder().data_type(to.clone()).child_data(children?).build()
}

/// Returns the first row with a forbidden null. Nulls are forbidden in a non-null column, and everywhere in a heavy
/// fixed-width column, where a single null would make a page unreadable without a decoder.
fn forbidden_null(field: &Field, column: &ArrayRef) -> Option<usize> {
    let dense = kind_of(field).storage(field).refuses_nulls;
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
