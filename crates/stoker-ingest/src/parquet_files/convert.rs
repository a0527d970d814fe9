//! Converts the values of columns.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt16Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, LargeBinaryArray, PrimitiveArray, RecordBatch, downcast_primitive,
};
use arrow_buffer::{Buffer, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{DataType, SchemaRef};
use half::bf16;

use super::column::{Column, Columns, Conversion, plain};
use super::flatten::flatten;
use crate::{Element, Error, Result, TensorSpec};

/// The origin of values (file, column and first row), for messages.
pub(super) struct ValueOrigin<'a> {
    pub path: &'a Path,
    pub column: &'a str,
    /// The index in the file of the row with the first value.
    pub first_row: u64,
}

impl ValueOrigin<'_> {
    /// Builds an error about a row, counted from the first value, or about all rows (`None`).
    pub fn mismatch(&self, row: Option<usize>, expected: &str, found: &str) -> Error {
        Error::Mismatch {
            path: self.path.to_path_buf(),
            row: row.map(|row| self.first_row + row as u64),
            column: self.column.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }
}

/// Converts a record batch of a file to the schema of the table.
pub(super) fn convert(
    columns: &Columns,
    schema: &SchemaRef,
    batch: &RecordBatch,
    path: &Path,
    first_row: u64,
) -> Result<RecordBatch> {
    let mut arrays = Vec::with_capacity(columns.0.len());
    for column in &columns.0 {
        let place = ValueOrigin { path, column: column.field.name(), first_row };
        let Some(array) = batch.column_by_name(column.field.name()) else {
            return Err(place.mismatch(None, "the columns of the first file", "no such column"));
        };
        arrays.push(convert_column(column, array, &place)?);
    }
    RecordBatch::try_new(schema.clone(), arrays)
        .map_err(|source| Error::internal(format!("converting rows of {}", path.display()), source))
}

fn convert_column(column: &Column, array: &ArrayRef, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    match &column.conversion {
        Conversion::Plain => to_type(array, column.field.data_type(), place),
        Conversion::Image => image_bytes(array, place),
        Conversion::Tensor(spec) => {
            let array = to_type(array, &plain(array.data_type()), place)?;
            let expected = spec.to_string();
            let values = match array.data_type() {
                DataType::LargeBinary | DataType::FixedSizeBinary(_) => from_bytes(&array, spec, &expected, place)?,
                _ => to_element(&flatten(&array, &spec.shape, &expected, place)?, spec, &expected, place)?,
            };
            fixed_size_list(column, values, place)
        }
        Conversion::Dense(length) => {
            let array = to_type(array, &plain(array.data_type()), place)?;
            let expected = format!("{length} numbers without nulls");
            fixed_size_list(column, flatten(&array, &[*length], &expected, place)?, place)
        }
    }
}

fn fixed_size_list(column: &Column, values: ArrayRef, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    let DataType::FixedSizeList(item, length) = column.field.data_type() else {
        return Err(place.mismatch(None, "a FixedSizeList", &column.field.data_type().to_string()));
    };
    let list = FixedSizeListArray::try_new(item.clone(), *length, values, None);
    Ok(Arc::new(list.map_err(|source| Error::internal(format!("converting column {}", place.column), source))?))
}

fn to_type(array: &ArrayRef, data_type: &DataType, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    if array.data_type() == data_type {
        return Ok(array.clone());
    }
    let options = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(array, data_type, &options)
        .map_err(|error| place.mismatch(None, &data_type.to_string(), &format!("{}: {error}", array.data_type())))
}

/// Returns the bytes of image files, from binary values or from structs with the field `bytes`.
fn image_bytes(array: &ArrayRef, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    let array = to_type(array, &plain(array.data_type()), place)?;
    let Some(rows) = array.as_struct_opt() else { return to_type(&array, &DataType::LargeBinary, place) };
    let Some(bytes) = rows.column_by_name("bytes") else {
        return Err(place.mismatch(None, "a struct with the field bytes", &array.data_type().to_string()));
    };
    let bytes = to_type(bytes, &DataType::LargeBinary, place)?;
    let (offsets, values, nulls) = bytes.as_binary::<i64>().clone().into_parts();
    let nulls = NullBuffer::union(nulls.as_ref(), rows.nulls());
    Ok(Arc::new(LargeBinaryArray::new(offsets, values, nulls)))
}

/// Converts little-endian bytes to elements.
fn from_bytes(array: &ArrayRef, spec: &TensorSpec, expected: &str, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    let array = to_type(array, &DataType::LargeBinary, place)?;
    let rows = array.as_binary::<i64>();
    let storage = spec.element.storage();
    let row_bytes = spec.length() * storage.primitive_width().unwrap_or(1);
    let mut buffer = MutableBuffer::new(row_bytes * rows.len());
    for (row, bytes) in rows.iter().enumerate() {
        match bytes {
            Some(bytes) if bytes.len() == row_bytes => buffer.extend_from_slice(bytes),
            Some(bytes) => {
                let found = format!("{} bytes instead of {row_bytes}", bytes.len());
                return Err(place.mismatch(Some(row), expected, &found));
            }
            None => return Err(place.mismatch(Some(row), expected, "null")),
        }
    }
    let buffer = Buffer::from(buffer);
    macro_rules! array {
        ($type:ty, $buffer:expr) => {
            Ok(Arc::new(PrimitiveArray::<$type>::new(ScalarBuffer::from($buffer), None)) as ArrayRef)
        };
    }
    downcast_primitive! {
        storage => (array, buffer),
        other => Err(place.mismatch(None, expected, &other.to_string()))
    }
}

/// Casts elements. A number that the target type cannot represent is an error.
fn to_element(values: &ArrayRef, spec: &TensorSpec, expected: &str, place: &ValueOrigin<'_>) -> Result<ArrayRef> {
    let found = values.data_type();
    let storage = spec.element.storage();
    if *found == storage {
        return Ok(values.clone());
    }
    let loses = spec.element == Element::BFloat16 && !found.is_floating();
    let is_number = found.is_numeric() && found.primitive_width().is_some_and(|width| width <= 8);
    let loses = loses || (found.is_floating() && storage.is_integer() && !is_bf16(spec));
    if loses || !(is_number || *found == DataType::Boolean) {
        return Err(place.mismatch(None, expected, &format!("elements of type {found}")));
    }
    let target = if is_bf16(spec) { DataType::Float32 } else { storage };
    let cast_values =
        cast(values, &target).map_err(|error| place.mismatch(None, expected, &format!("{found}: {error}")))?;
    if cast_values.null_count() > 0 {
        let index = (0..cast_values.len()).find(|index| cast_values.is_null(*index)).unwrap_or(0);
        let found = format!("an element of type {found} that does not fit {}", spec.element);
        return Err(place.mismatch(Some(index / spec.length().max(1)), expected, &found));
    }
    if !is_bf16(spec) {
        return Ok(cast_values);
    }
    let floats = cast_values.as_primitive::<Float32Type>();
    let bits = floats.values().iter().map(|value| bf16::from_f32(*value).to_bits());
    Ok(Arc::new(PrimitiveArray::<UInt16Type>::from_iter_values(bits)))
}

fn is_bf16(spec: &TensorSpec) -> bool {
    spec.element == Element::BFloat16
}
