//! Fits Arrow data from Python to the schema of a table.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, make_array};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, SchemaRef};
use stoker_types::{EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, TensorType, is_heavy};

/// Returns the schema with which incoming columns are written.
///
/// Tensors get their canonical form: non-null rows of non-null elements, which are stored as plain bytes. A column that
/// an existing table has with the same type takes over the table's field. So a nullable column without nulls fits a
/// non-null column of the table.
pub(crate) fn target_schema(incoming: &Schema, existing: Option<&Schema>) -> SchemaRef {
    let field = |field: &FieldRef| {
        let canonical = canonical(field);
        match existing.and_then(|schema| schema.field_with_name(field.name()).ok()) {
            Some(theirs) if agrees(theirs, &canonical) => Arc::new(theirs.clone()),
            _ => Arc::new(canonical),
        }
    };
    Arc::new(Schema::new(incoming.fields().iter().map(field).collect::<Vec<_>>()))
}

/// Returns the batch with the types of `target`, without copying values. The writer, not this function, refuses nulls
/// in the rows.
pub(crate) fn fit(batch: &RecordBatch, target: &Schema) -> Result<RecordBatch, ArrowError> {
    let mut fields = Vec::with_capacity(batch.num_columns());
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, column) in target.fields().iter().zip(batch.columns()) {
        fields.push(Arc::new(field.as_ref().clone().with_nullable(true)));
        columns.push(fit_column(field, column)?);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn canonical(field: &Field) -> Field {
    let Some(tensor) = TensorType::of(field) else { return field.clone() };
    let DataType::FixedSizeList(_, length) = field.data_type() else { return field.clone() };
    let item = Field::new("item", tensor.element, false);
    let is_tensor = field.metadata().contains_key(EXTENSION_NAME_KEY) || is_heavy(field);
    let nullable = field.is_nullable() && !is_tensor;
    Field::new(field.name(), DataType::FixedSizeList(Arc::new(item), *length), nullable)
        .with_metadata(field.metadata().clone())
}

/// Whether a table's field has the type of the incoming field and, if the incoming field names an extension type, the
/// same one.
fn agrees(theirs: &Field, incoming: &Field) -> bool {
    let same = |key: &str| incoming.metadata().get(key).is_none_or(|value| theirs.metadata().get(key) == Some(value));
    same_type(theirs.data_type(), incoming.data_type()) && same(EXTENSION_NAME_KEY) && same(EXTENSION_METADATA_KEY)
}

/// Whether two types are equal, apart from the names and the nullability of the items of fixed-size lists, which tables
/// do not keep.
fn same_type(left: &DataType, right: &DataType) -> bool {
    match (left, right) {
        (DataType::FixedSizeList(left, left_length), DataType::FixedSizeList(right, right_length)) => {
            left_length == right_length && same_type(left.data_type(), right.data_type())
        }
        (left, right) => left.equals_datatype(right),
    }
}

fn fit_column(field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let (DataType::FixedSizeList(item, length), DataType::FixedSizeList(..)) = (field.data_type(), column.data_type())
    else {
        return Ok(column.clone());
    };
    let list = column.as_fixed_size_list();
    let values = list.values();
    if list.value_length() != *length || values.data_type() != item.data_type() {
        return Ok(column.clone());
    }
    let values = match without_nulls(list) {
        Some(values) => values,
        None if item.is_nullable() => values.clone(),
        None => {
            let message = format!("column {} has nulls inside its tensors or vectors", field.name());
            return Err(ArrowError::InvalidArgumentError(message));
        }
    };
    let fitted = FixedSizeListArray::try_new(item.clone(), *length, values, list.nulls().cloned())?;
    Ok(Arc::new(fitted))
}

/// Returns the elements without a validity buffer if every null element lies in a null row, as in the arrays that
/// pyarrow makes; otherwise `None`.
fn without_nulls(list: &FixedSizeListArray) -> Option<ArrayRef> {
    let values = list.values();
    let Some(nulls) = values.nulls().filter(|nulls| nulls.null_count() > 0) else { return Some(values.clone()) };
    let of_rows = list.nulls()?.expand(list.value_length() as usize);
    let data = of_rows.contains(nulls).then(|| values.to_data().into_builder().nulls(None).build())?;
    data.ok().map(make_array)
}
