//! Converts lists of equal length into one flat array, and checks each row.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::ArrowNativeType as _;
use arrow_schema::DataType;

use crate::Mismatch;

/// Returns the elements of a column whose rows have this shape: those of row 0, then those of row 1, and so on.
///
/// The lists may be nested as deeply as the shape, or less deeply if the innermost lists contain the remaining
/// dimensions in row-major order. `expected` describes the column for messages.
pub(super) fn flatten(column: &ArrayRef, shape: &[usize], expected: &str) -> Result<ArrayRef, Mismatch> {
    let (mut values, mut items_per_row, mut sizes) = (column.clone(), 1usize, shape);
    check_nulls(&values, items_per_row, expected)?;
    while let Some(item) = list_item(values.data_type()) {
        let innermost = list_item(&item).is_none();
        let (size, rest) = match sizes.split_first() {
            Some((size, rest)) if !innermost => (*size, rest),
            _ => (sizes.iter().product(), &[] as &[usize]),
        };
        if let Some((index, found)) = first_other_length(&values, size) {
            let found = format!("a list of {found} elements instead of {size}");
            return Err(Mismatch::new(Some(index / items_per_row.max(1)), expected, found));
        }
        values = elements(&values);
        items_per_row *= size;
        sizes = rest;
        check_nulls(&values, items_per_row, expected)?;
    }
    if sizes.iter().product::<usize>() != 1 {
        return Err(Mismatch::new(None, expected, column.data_type().to_string()));
    }
    Ok(values)
}

fn check_nulls(values: &ArrayRef, items_per_row: usize, expected: &str) -> Result<(), Mismatch> {
    if values.null_count() == 0 {
        return Ok(());
    }
    let index = (0..values.len()).find(|index| values.is_null(*index)).unwrap_or(0);
    let found = if items_per_row == 1 { "null" } else { "a null element" };
    Err(Mismatch::new(Some(index / items_per_row.max(1)), expected, found))
}

fn list_item(data_type: &DataType) -> Option<DataType> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            Some(item.data_type().clone())
        }
        _ => None,
    }
}

/// Returns the index and the length of the first list that does not have `size` elements.
fn first_other_length(lists: &ArrayRef, size: usize) -> Option<(usize, usize)> {
    if lists.is_empty() {
        return None;
    }
    match lists.data_type() {
        DataType::FixedSizeList(_, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            (length != size).then_some((0, length))
        }
        DataType::List(_) => {
            let offsets = lists.as_list::<i32>().value_offsets();
            other_than(size, offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize))
        }
        _ => {
            let offsets = lists.as_list::<i64>().value_offsets();
            other_than(size, offsets.windows(2).map(|pair| (pair[1] - pair[0]).as_usize()))
        }
    }
}

fn other_than(size: usize, lengths: impl Iterator<Item = usize>) -> Option<(usize, usize)> {
    lengths.enumerate().find(|(_, length)| *length != size)
}

/// Returns the elements of all lists, none of which is null.
fn elements(lists: &ArrayRef) -> ArrayRef {
    match lists.data_type() {
        DataType::FixedSizeList(_, length) => {
            let (list, length) = (lists.as_fixed_size_list(), usize::try_from(*length).unwrap_or(0));
            list.values().slice(list.value_offset(0) as usize, lists.len() * length)
        }
        DataType::List(_) => {
            let list = lists.as_list::<i32>();
            let (start, end) = (list.value_offsets()[0] as usize, list.value_offsets()[lists.len()] as usize);
            list.values().slice(start, end - start)
        }
        _ => {
            let list = lists.as_list::<i64>();
            let (start, end) = (list.value_offsets()[0].as_usize(), list.value_offsets()[lists.len()].as_usize());
            list.values().slice(start, end - start)
        }
    }
}
