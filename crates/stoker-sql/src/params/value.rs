//! Converts parameters to values of the planner.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch,
};
use arrow_buffer::OffsetBuffer;
use arrow_cast::cast;
use arrow_cast::display::array_value_to_string;
use arrow_schema::{DataType, Field};
use datafusion::common::{Result as DfResult, ScalarValue};
use stoker_types::ParamValue;

use crate::resolve::Constant;

/// 2^53, up to which an `f64` represents every integer.
const EXACT_INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Returns the value of a parameter where a vector or a scalar is expected: a fixed-size list of `Float32` for a
/// vector. Returns `None` for parameters that become literals in the AST.
pub(super) fn whole(value: &ParamValue) -> DfResult<Option<ScalarValue>> {
    match value {
        ParamValue::Vector(values) => {
            #[expect(clippy::cast_possible_truncation, reason = "vectors have elements of type `Float32`")]
            let values = Float32Array::from_iter_values(values.iter().map(|value| *value as f32));
            let length = i32::try_from(values.len()).unwrap_or(i32::MAX);
            let list =
                FixedSizeListArray::try_new_with_length(item(&DataType::Float32), length, Arc::new(values), None, 1)?;
            Ok(Some(ScalarValue::FixedSizeList(Arc::new(list))))
        }
        ParamValue::Arrow(value) => ScalarValue::try_from_array(value.value(), 0).map(Some),
        _ => Ok(None),
    }
}

/// Returns the elements of a list parameter: `Int64` if all numbers of a vector are integers, else `Float64`; the own
/// type for an Arrow list.
pub(super) fn elements(value: &ParamValue) -> Option<ArrayRef> {
    match value {
        ParamValue::Vector(values) => {
            let is_exact = |value: &f64| value.fract() == 0.0 && value.abs() <= EXACT_INTEGER_MAX;
            Some(match values.iter().all(is_exact) {
                #[expect(clippy::cast_possible_truncation, reason = "`is_exact` holds for all values")]
                true => Arc::new(Int64Array::from_iter_values(values.iter().map(|value| *value as i64))),
                false => Arc::new(Float64Array::from(values.clone())),
            })
        }
        ParamValue::Arrow(value) => list_values(value.value()),
        _ => None,
    }
}

/// Returns the number of elements of a list parameter, or `None` for other parameters.
pub(super) fn list_length(value: &ParamValue) -> Option<usize> {
    elements(value).map(|elements| elements.len())
}

/// Returns the elements of a vector as a list.
pub(super) fn list(elements: ArrayRef) -> DfResult<ScalarValue> {
    let (item, offsets) = (item(elements.data_type()), OffsetBuffer::from_lengths([elements.len()]));
    Ok(ScalarValue::List(Arc::new(ListArray::try_new(item, offsets, elements, None)?)))
}

/// Returns the numbers of a vector, or of a list of numbers without nulls.
pub(crate) fn numbers(value: &ParamValue) -> Option<Vec<f64>> {
    match value {
        ParamValue::Vector(values) => Some(values.clone()),
        ParamValue::Arrow(value) => list_numbers(value.value()),
        _ => None,
    }
}

/// Returns the numbers of an array of one list; `None` for NULL, and for a list with nulls or of other values.
pub(crate) fn list_numbers(list: &ArrayRef) -> Option<Vec<f64>> {
    let array = list_values(list)?;
    let is_number = array.data_type().is_numeric() && array.null_count() == 0;
    let values = is_number.then(|| cast(&array, &DataType::Float64).ok())??;
    Some(values.as_primitive::<Float64Type>().values().to_vec())
}

/// Returns the rows of a parameter that is a list of structs without NULL.
pub(crate) fn rows_of(value: &ParamValue) -> Option<RecordBatch> {
    let ParamValue::Arrow(value) = value else { return None };
    let rows = list_values(value.value())?;
    rows.as_struct_opt().filter(|rows| rows.null_count() == 0).map(RecordBatch::from)
}

/// Returns a scalar parameter where the grammar requires a literal, or `None` for parameters that cannot be one.
pub(crate) fn constant(value: &ParamValue) -> Option<Constant> {
    match value {
        ParamValue::Int(value) => Some(Constant::Int(*value)),
        ParamValue::Float(value) => Some(Constant::Float(*value)),
        ParamValue::Text(text) => Some(Constant::Text(text.clone())),
        ParamValue::Bool(value) => Some(Constant::Bool(*value)),
        ParamValue::Null | ParamValue::Vector(_) => None,
        ParamValue::Arrow(value) => arrow_constant(value.value()),
    }
}

fn arrow_constant(value: &ArrayRef) -> Option<Constant> {
    if value.is_null(0) {
        return None;
    }
    let as_type = |data_type| cast(value, &data_type).ok().filter(|value| value.is_valid(0));
    match value.data_type() {
        DataType::Boolean => Some(Constant::Bool(value.as_boolean().value(0))),
        integer if integer.is_integer() => {
            Some(Constant::Int(as_type(DataType::Int64)?.as_primitive::<Int64Type>().value(0)))
        }
        number if number.is_numeric() => {
            Some(Constant::Float(as_type(DataType::Float64)?.as_primitive::<Float64Type>().value(0)))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Timestamp(..) | DataType::Date32 => {
            array_value_to_string(value, 0).ok().map(Constant::Text)
        }
        _ => None,
    }
}

/// Returns the values of an array of one list.
fn list_values(list: &ArrayRef) -> Option<ArrayRef> {
    if list.is_null(0) {
        return None;
    }
    match list.data_type() {
        DataType::List(_) => Some(list.as_list::<i32>().value(0)),
        DataType::LargeList(_) => Some(list.as_list::<i64>().value(0)),
        DataType::FixedSizeList(..) => Some(list.as_fixed_size_list().value(0)),
        _ => None,
    }
}

fn item(data_type: &DataType) -> Arc<Field> {
    Arc::new(Field::new_list_field(data_type.clone(), true))
}
