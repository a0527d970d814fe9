//! The elements of tensors and vectors: a FixedSizeList of non-null numbers, whose rows are stored as plain bytes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, make_array};
use arrow_schema::{ArrowError, DataType, Field};

use super::TensorType;
use super::flatten::flatten;
use crate::ingest::{Cast, Conversion, plain, to_plain};
use crate::{EXTENSION_NAME_KEY, Ingest, Mismatch, is_heavy};

/// Whether the rows of a column of tensors or vectors are never null: those of tensors, and heavy ones.
fn is_dense(field: &Field) -> bool {
    field.metadata().contains_key(EXTENSION_NAME_KEY) || is_heavy(field)
}

/// Returns a non-null field of non-null elements.
pub(crate) fn dense_field(name: &str, element: DataType, length: usize) -> Field {
    let item = Arc::new(Field::new("item", element, false));
    Field::new(name, DataType::FixedSizeList(item, i32::try_from(length).unwrap_or(i32::MAX)), false)
}

/// The field with which rows from Python are written.
pub(super) fn canonical(field: &Field) -> Field {
    let Some(tensor) = TensorType::of(field) else { return field.clone() };
    let DataType::FixedSizeList(_, length) = field.data_type() else { return field.clone() };
    let item = Field::new("item", tensor.element, false);
    let nullable = field.is_nullable() && !is_dense(field);
    Field::new(field.name(), DataType::FixedSizeList(Arc::new(item), *length), nullable)
        .with_metadata(field.metadata().clone())
}

/// Returns fixed-size lists with the items of `field`.
///
/// # Errors
/// A null element in a row that is not null, if the items of `field` are not nullable.
pub(crate) fn fit_elements(field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
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
            let message = "nulls inside its tensors or vectors".to_string();
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

/// How a column of tensors or vectors of another system is ingested: with non-null rows where that is the rule.
pub(super) fn as_dense(field: Field) -> Ingest {
    match TensorType::of(&field) {
        Some(tensor) if is_dense(&field) => {
            let length = tensor.shape.iter().product();
            let dense = dense_field(field.name(), tensor.element, length).with_metadata(field.metadata().clone());
            Ingest::new(dense, FromLists { length })
        }
        _ => Ingest::new(field, Cast),
    }
}

/// Lists of `length` numbers become a FixedSizeList without nulls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FromLists {
    pub length: usize,
}

impl Conversion for FromLists {
    fn accepts(&self, field: &Field, found: &DataType) -> bool {
        match (field.data_type(), plain(found)) {
            (
                DataType::FixedSizeList(expected, _),
                DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _),
            ) => item.data_type() == expected.data_type(),
            _ => false,
        }
    }

    fn keeps_nulls(&self) -> bool {
        false
    }

    fn convert(&self, field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let expected = format!("{} numbers without nulls", self.length);
        fixed_size_list(field, flatten(&to_plain(array)?, &[self.length], &expected)?)
    }
}

/// Returns the rows of a column of fixed-size lists.
pub(crate) fn fixed_size_list(field: &Field, values: ArrayRef) -> Result<ArrayRef, Mismatch> {
    let DataType::FixedSizeList(item, length) = field.data_type() else {
        return Err(Mismatch::new(None, "a FixedSizeList", field.data_type().to_string()));
    };
    let found = values.data_type().clone();
    let list = FixedSizeListArray::try_new(item.clone(), *length, values, None);
    let list = list.map_err(|error| Mismatch::new(None, field.data_type().to_string(), format!("{found}: {error}")))?;
    Ok(Arc::new(list))
}
