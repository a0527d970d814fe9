//! Reads list columns as rows of `f32`, and their elements as `f64`.

use std::borrow::Cow;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, UInt8Type, UInt16Type};
use arrow_array::{Array, ArrayRef, Float64Array};
use arrow_buffer::{ArrowNativeType as _, NullBuffer};
use arrow_schema::DataType;
use datafusion::common::{Result as DfResult, exec_err};
use stoker_columns::SmallFloat;

/// The number of dimensions of a vector type.
pub(crate) enum Dimensions {
    /// All rows have this number of dimensions.
    Fixed(usize),
    /// The number of dimensions may differ between rows.
    Variable,
    /// The type is not a list of numbers.
    NotVector,
}

/// Returns the dimensions of a type. `NULL` literals count as vectors of any length.
pub(crate) fn dimensions(data_type: &DataType) -> Dimensions {
    let numeric = |item: &DataType| item.is_numeric() || item.is_null();
    match data_type {
        DataType::FixedSizeList(item, length) if numeric(item.data_type()) => {
            Dimensions::Fixed(usize::try_from(*length).unwrap_or_default())
        }
        DataType::List(item) | DataType::LargeList(item) if numeric(item.data_type()) => Dimensions::Variable,
        DataType::Null => Dimensions::Variable,
        _ => Dimensions::NotVector,
    }
}

/// Tells whether a type is a vector type or NULL.
pub(crate) fn is_vector(data_type: &DataType) -> bool {
    !matches!(dimensions(data_type), Dimensions::NotVector)
}

/// The rows of a list array, converted to `f32` once per batch.
pub(crate) struct Vectors {
    values: ArrayRef,
    value_nulls: Option<NullBuffer>,
    nulls: Option<NullBuffer>,
    bounds: Bounds,
    num_rows: usize,
}

enum Bounds {
    Fixed(usize),
    Offsets(Vec<usize>),
    AllNull,
}

impl Vectors {
    /// Reads an array of a vector type. Other types are an execution error.
    pub(crate) fn try_new(array: &ArrayRef) -> DfResult<Self> {
        let num_rows = array.len();
        let (values, bounds) = match array.data_type() {
            DataType::FixedSizeList(_, length) => {
                let list = array.as_fixed_size_list();
                let length = usize::try_from(*length).unwrap_or_default();
                // A slice of a list array keeps the whole child array, which is cut here to the rows of this slice.
                let first = list.value_offset(0).max(0) as usize;
                (list.values().slice(first, num_rows * length), Bounds::Fixed(length))
            }
            DataType::Null => (arrow_array::new_empty_array(&DataType::Float32), Bounds::AllNull),
            other => match elements_and_offsets(array) {
                Some((values, offsets)) => (values, Bounds::Offsets(offsets)),
                None => return exec_err!("a vector is needed, not {other}"),
            },
        };
        let values = arrow_cast::cast(&values, &DataType::Float32)?;
        let value_nulls = values.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        Ok(Self { values, value_nulls, nulls: array.nulls().cloned(), bounds, num_rows })
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Returns the vector of a row, or `None` if the vector or one of its elements is NULL.
    pub(crate) fn row(&self, row: usize) -> Option<&[f32]> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let range = match &self.bounds {
            Bounds::Fixed(length) => row * length..(row + 1) * length,
            Bounds::Offsets(offsets) => offsets[row]..offsets[row + 1],
            Bounds::AllNull => return None,
        };
        if let Some(nulls) = &self.value_nulls
            && nulls.slice(range.start, range.len()).null_count() > 0
        {
            return None;
        }
        Some(&self.values.as_primitive::<Float32Type>().values()[range])
    }
}

/// Returns the elements of a List or LargeList array, and the offsets in them at which rows begin, followed by the one
/// at which the last row ends. `None` for other types. In a slice of an array the first offset is not zero.
pub(crate) fn elements_and_offsets(array: &ArrayRef) -> Option<(ArrayRef, Vec<usize>)> {
    if let Some(list) = array.as_list_opt::<i32>() {
        let offsets = list.offsets().iter().map(|offset| offset.as_usize()).collect();
        return Some((list.values().clone(), offsets));
    }
    let list = array.as_list_opt::<i64>()?;
    let offsets = list.offsets().iter().map(|offset| offset.as_usize()).collect();
    Some((list.values().clone(), offsets))
}

/// Converts the elements of a tensor or vector to `f64`. Those that are floats which Arrow lacks are stored as bits.
pub(crate) fn to_f64(elements: &ArrayRef, float: Option<SmallFloat>) -> DfResult<Float64Array> {
    if let Some(float) = float {
        if let Some(bits) = elements.as_primitive_opt::<UInt16Type>() {
            return Ok(bits.unary(|bits| f64::from(float.to_f32(bits))));
        }
        if let Some(bits) = elements.as_primitive_opt::<UInt8Type>() {
            return Ok(bits.unary(|bits| f64::from(float.to_f32(u16::from(bits)))));
        }
    }
    Ok(arrow_cast::cast(elements, &DataType::Float64)?.as_primitive::<Float64Type>().clone())
}

/// Returns the number of dimensions as text, for error messages.
pub(crate) fn shown(dimensions: &Dimensions) -> Cow<'static, str> {
    match dimensions {
        Dimensions::Fixed(length) => Cow::Owned(length.to_string()),
        Dimensions::Variable => Cow::Borrowed("any number of"),
        Dimensions::NotVector => Cow::Borrowed("no"),
    }
}
