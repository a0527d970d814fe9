//! The elements of rows of different lengths, one after the other, and where each row begins.

use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, GenericListArray, OffsetSizeTrait, StructArray};
use arrow_buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field};
use arrow_select::filter::filter;

use super::{Ragged, VariableShape};
use crate::{ColumnKind, Mismatch, dense_values};

/// The rows of a column of lists or of tensors of which each has its own shape. Null rows have no elements.
#[derive(Clone, Debug)]
pub struct RaggedValues {
    /// For each level of lists, outermost first: where each list begins in the next level, and last, where the last one
    /// ends. Begins with zero.
    pub offsets: Vec<ScalarBuffer<i64>>,
    /// The elements of all lists, without nulls; booleans are UInt8. Elements of a fixed shape are many numbers.
    pub values: ArrayRef,
    /// The sizes of each tensor in the stored order, tensor after tensor, if each has its own shape.
    pub sizes: Option<ScalarBuffer<i64>>,
    /// The number of dimensions of tensors of which each has its own shape; zero for lists.
    pub num_dims: usize,
}

/// Returns the rows of a column, in the memory of the column as far as it has no nulls; `None` for columns of another
/// kind.
///
/// # Errors
/// The first tensor whose shape does not fit its elements.
pub fn ragged_values(field: &Field, array: &ArrayRef) -> Result<Option<RaggedValues>, Mismatch> {
    if !Ragged.holds(field) {
        return Ok(None);
    }
    if let Some(tensors) = array.as_struct_opt() {
        return VariableShape::of(field).map(|shapes| shaped(tensors, &shapes)).transpose();
    }
    let (offsets, elements) = lists(array.clone())?;
    Ok(dense_values(&elements).map(|values| RaggedValues { offsets, values, sizes: None, num_dims: 0 }))
}

/// Returns the offsets of all levels of lists, and the elements of the innermost ones.
fn lists(array: ArrayRef) -> Result<(Vec<ScalarBuffer<i64>>, ArrayRef), Mismatch> {
    let (mut offsets, mut inner) = (Vec::new(), array);
    loop {
        let (level, elements) = match inner.data_type() {
            DataType::List(_) => list(inner.as_list::<i32>())?,
            DataType::LargeList(_) => list(inner.as_list::<i64>())?,
            _ => return Ok((offsets, inner)),
        };
        offsets.push(level);
        inner = elements;
    }
}

/// Returns the offsets of lists, counted from zero, and their elements. Null lists become empty.
fn list<O: OffsetSizeTrait>(lists: &GenericListArray<O>) -> Result<(ScalarBuffer<i64>, ArrayRef), Mismatch> {
    let stored = lists.value_offsets();
    let at = |index: usize| stored.get(index).map_or(0, |offset| offset.as_usize());
    let (first, last) = (at(0), at(lists.len()));
    let elements = lists.values().slice(first, last - first);
    let nulls = lists.nulls().filter(|nulls| nulls.null_count() > 0);
    let hidden = |row: &usize| nulls.is_some_and(|nulls| nulls.is_null(*row)) && at(row + 1) > at(*row);
    if !(0..lists.len()).any(|row| hidden(&row)) {
        let offsets = (0..=lists.len()).map(|index| offset(at(index) - first));
        return Ok((offsets.collect(), elements));
    }
    let mut kept = BooleanBufferBuilder::new(elements.len());
    let mut offsets = vec![0];
    let mut end = 0;
    for row in 0..lists.len() {
        let length = at(row + 1) - at(row);
        let is_hidden = hidden(&row);
        kept.append_n(length, !is_hidden);
        end += if is_hidden { 0 } else { length };
        offsets.push(offset(end));
    }
    let elements = filter(&elements, &BooleanArray::new(kept.finish(), None));
    let elements = elements.map_err(|error| Mismatch::new(None, "lists without nulls", error.to_string()))?;
    Ok((offsets.into(), elements))
}

fn offset(index: usize) -> i64 {
    i64::try_from(index).unwrap_or(i64::MAX)
}

/// Returns tensors of which each has its own shape.
fn shaped(tensors: &StructArray, shapes: &VariableShape) -> Result<RaggedValues, Mismatch> {
    let num_dims = shapes.sizes.len();
    let [data, sizes] = tensors.columns() else {
        return Err(Mismatch::new(None, "the members data and shape", tensors.data_type().to_string()));
    };
    let sizes = sizes.as_fixed_size_list();
    let is_valid = BooleanBuffer::collect_bool(tensors.len(), |row| {
        tensors.is_valid(row) && data.is_valid(row) && sizes.is_valid(row)
    });
    let nulls = NullBuffer::new(is_valid);
    let data: ArrayRef = match data.data_type() {
        DataType::List(_) => Arc::new(with_nulls(data.as_list::<i32>(), &nulls)?),
        _ => Arc::new(with_nulls(data.as_list::<i64>(), &nulls)?),
    };
    let (offsets, elements) = lists(data)?;
    let sizes = sizes.values().as_primitive::<Int32Type>();
    let mut known = Vec::with_capacity(num_dims * tensors.len());
    for row in 0..tensors.len() {
        let at = |index: usize| offsets.first().and_then(|offsets| offsets.get(index)).copied().unwrap_or(0);
        let of_row = &sizes.values()[row * num_dims..(row + 1) * num_dims];
        if nulls.is_null(row) {
            known.extend(std::iter::repeat_n(0, num_dims));
            continue;
        }
        let (length, mut product) = (at(row + 1) - at(row), Some(1i64));
        for (size, uniform) in of_row.iter().zip(&shapes.sizes) {
            let is_allowed = *size >= 0 && uniform.is_none_or(|uniform| usize::try_from(*size).ok() == Some(uniform));
            product = product.filter(|_| is_allowed).and_then(|product| product.checked_mul(i64::from(*size)));
            known.push(i64::from(*size));
        }
        if product != Some(length) {
            let expected = format!("a shape {} of {length} elements", shapes.sizes_label());
            return Err(Mismatch::new(Some(row), expected, format!("{of_row:?}")));
        }
    }
    let expected = || Mismatch::new(None, "numbers", elements.data_type().to_string());
    let values = dense_values(&elements).ok_or_else(expected)?;
    Ok(RaggedValues { offsets, values, sizes: Some(known.into()), num_dims })
}

fn with_nulls<O: OffsetSizeTrait>(
    lists: &GenericListArray<O>,
    nulls: &NullBuffer,
) -> Result<GenericListArray<O>, Mismatch> {
    let (field, offsets, values, _) = lists.clone().into_parts();
    GenericListArray::try_new(field, offsets, values, Some(nulls.clone()))
        .map_err(|error| Mismatch::new(None, "lists of numbers", error.to_string()))
}
