//! Puts rows of several arrays into one.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, OffsetSizeTrait, make_array, new_empty_array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef};
use arrow_select::interleave::interleave;

use crate::{BufferPool, Error, Result, RowMemory};

/// Returns an array whose rows `places` names: for each of them the array, and the row there. The arrays have one type.
///
/// Rows of tensors and of lists of numbers are copied as bytes, to memory from `pool` if there is one: Arrow's kernel
/// writes down the place of each number of a list first, in four times the bytes of a token. It does all other types.
///
/// # Errors
/// [`Error::OutOfMemory`]; [`Error::Internal`] for arrays of several types, and for lists of more than 2^31 numbers together
/// whose offsets have 32 bits.
pub fn interleave_column(
    arrays: &[&dyn Array],
    places: &[(usize, usize)],
    pool: Option<&BufferPool>,
) -> Result<ArrayRef> {
    let Some(first) = arrays.first() else { return Err(Error::internal("rows of no arrays")) };
    if places.is_empty() {
        return Ok(new_empty_array(first.data_type()));
    }
    let found = match first.data_type() {
        DataType::FixedSizeList(item, length) => tensors(arrays, places, item, *length, pool)?,
        DataType::List(item) => lists::<i32>(arrays, places, item, pool)?,
        DataType::LargeList(item) => lists::<i64>(arrays, places, item, pool)?,
        _ => None,
    };
    match found {
        Some(found) => Ok(found),
        None => interleave(arrays, places).map_err(Error::internal),
    }
}

/// The numbers of an array, as bytes.
struct Numbers {
    data: ArrayData,
    width: usize,
}

impl Numbers {
    /// Returns the values of an array, if they are numbers and none of them is null.
    fn of(values: &ArrayRef) -> Option<Self> {
        let width = values.data_type().primitive_width().filter(|_| values.null_count() == 0)?;
        Some(Self { data: values.to_data(), width })
    }

    fn bytes(&self) -> &[u8] {
        let all = self.data.buffers().first().map_or(&[][..], |buffer| buffer.as_slice());
        all.get(self.data.offset() * self.width..).unwrap_or_default()
    }
}

/// Returns numbers that were copied.
fn values(data_type: &DataType, length: usize, memory: RowMemory) -> Result<ArrayRef> {
    let data = ArrayData::builder(data_type.clone()).len(length).add_buffer(memory.freeze());
    Ok(make_array(data.build().map_err(Error::internal)?))
}

/// Returns rows of tensors, unless they have nulls or other values than numbers.
fn tensors(
    arrays: &[&dyn Array],
    places: &[(usize, usize)],
    item: &FieldRef,
    length: i32,
    pool: Option<&BufferPool>,
) -> Result<Option<ArrayRef>> {
    let mut numbers = Vec::with_capacity(arrays.len());
    for array in arrays {
        let found = array.as_fixed_size_list_opt().filter(|list| list.null_count() == 0);
        let Some(found) = found.and_then(|list| Numbers::of(list.values())) else { return Ok(None) };
        numbers.push(found);
    }
    let items = usize::try_from(length).map_err(Error::internal)?;
    let row_bytes = items * numbers.first().map_or(0, |numbers| numbers.width);
    let rows: Vec<&[u8]> = numbers.iter().map(Numbers::bytes).collect();
    let mut memory = RowMemory::of_bytes(places.len() * row_bytes, pool)?;
    for ((array, row), target) in places.iter().zip(memory.chunks_exact_mut(row_bytes.max(1))) {
        target.copy_from_slice(&rows[*array][row * row_bytes..(row + 1) * row_bytes]);
    }
    let values = values(item.data_type(), places.len() * items, memory)?;
    let list = FixedSizeListArray::try_new_with_length(item.clone(), length, values, None, places.len());
    Ok(Some(Arc::new(list.map_err(Error::internal)?)))
}

/// Returns rows of lists, unless these have nulls or other values than numbers. Lists themselves may be null.
fn lists<O: OffsetSizeTrait>(
    arrays: &[&dyn Array],
    places: &[(usize, usize)],
    item: &FieldRef,
    pool: Option<&BufferPool>,
) -> Result<Option<ArrayRef>> {
    let lists: Option<Vec<&GenericListArray<O>>> = arrays.iter().map(|array| array.as_list_opt::<O>()).collect();
    let lists = lists.ok_or_else(|| Error::internal("rows of arrays of several types"))?;
    let numbers: Option<Vec<Numbers>> = lists.iter().map(|list| Numbers::of(list.values())).collect();
    let Some(numbers) = numbers else { return Ok(None) };
    let width = numbers.first().map_or(0, |numbers| numbers.width);
    let offsets: Vec<&[O]> = lists.iter().map(|list| list.value_offsets()).collect();
    let range = |(array, row): (usize, usize)| offsets[array][row].as_usize()..offsets[array][row + 1].as_usize();
    let num_items = places.iter().try_fold(0usize, |sum, place| sum.checked_add(range(*place).len()));
    let num_items = num_items.filter(|items| O::from_usize(*items).is_some());
    let num_items = num_items.ok_or_else(|| Error::internal("lists of more than 2^31 numbers together"))?;
    let stored: Vec<&[u8]> = numbers.iter().map(Numbers::bytes).collect();
    let mut memory = RowMemory::of_bytes(num_items * width, pool)?;
    let mut rest = &mut *memory;
    for place in places {
        let range = range(*place);
        let (target, after) = rest.split_at_mut(range.len() * width);
        target.copy_from_slice(&stored[place.0][range.start * width..range.end * width]);
        rest = after;
    }
    let nulls = lists.iter().any(|list| list.null_count() > 0).then(|| {
        let is_valid = |index: usize| lists[places[index].0].is_valid(places[index].1);
        NullBuffer::new(BooleanBuffer::collect_bool(places.len(), is_valid))
    });
    let lengths = OffsetBuffer::<O>::from_lengths(places.iter().map(|place| range(*place).len()));
    let values = values(item.data_type(), num_items, memory)?;
    let list = GenericListArray::<O>::try_new(item.clone(), lengths, values, nulls);
    Ok(Some(Arc::new(list.map_err(Error::internal)?)))
}
