//! The computation of checksums from values.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray};
use arrow_schema::DataType;
use stoker_checksum::checksum;

/// Computes the checksum of each row, 0 for a null row. `None` for types without checksums: all but fixed-size lists
/// of numbers, binary values and text.
///
/// The checksum of a fixed-size list covers its numbers in little-endian order; that of a binary value or text covers
/// its bytes.
pub fn row_checksums(values: &ArrayRef) -> Option<Vec<u32>> {
    match values.data_type() {
        DataType::FixedSizeList(item, _) if item.data_type().is_primitive() => of_lists(values.as_fixed_size_list()),
        DataType::Binary => Some(of_values(values.as_binary::<i32>().iter())),
        DataType::LargeBinary => Some(of_values(values.as_binary::<i64>().iter())),
        DataType::Utf8 => Some(of_values(values.as_string::<i32>().iter().map(|text| text.map(str::as_bytes)))),
        DataType::LargeUtf8 => Some(of_values(values.as_string::<i64>().iter().map(|text| text.map(str::as_bytes)))),
        _ => None,
    }
}

/// `None` when there are nulls among the numbers, because the bytes of a null number are undefined.
fn of_lists(lists: &FixedSizeListArray) -> Option<Vec<u32>> {
    let items = lists.values().to_data();
    if items.null_count() > 0 {
        return None;
    }
    let width = items.data_type().primitive_width()?;
    let row_bytes = width.checked_mul(usize::try_from(lists.value_length()).ok()?)?;
    let bytes = items.buffers().first()?.as_slice().get(items.offset() * width..)?;
    let of_row = |row: usize| match lists.is_null(row) {
        true => Some(0),
        false => bytes.get(row * row_bytes..(row + 1) * row_bytes).map(checksum),
    };
    (0..lists.len()).map(of_row).collect()
}

fn of_values<'a>(values: impl Iterator<Item = Option<&'a [u8]>>) -> Vec<u32> {
    values.map(|value| value.map_or(0, checksum)).collect()
}
