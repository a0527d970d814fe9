//! The size of rows when they are plain.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, downcast_integer};
use arrow_schema::DataType;

/// The bytes that a row takes at least.
const ROW_BYTES_MIN: u64 = 1;

/// Returns about how many bytes a row takes without dictionaries and views.
pub(super) fn row_bytes(batch: &RecordBatch, row: usize) -> u64 {
    let bytes = batch.columns().iter().map(|column| value_bytes(column, row));
    bytes.fold(ROW_BYTES_MIN, u64::saturating_add)
}

fn value_bytes(array: &ArrayRef, row: usize) -> u64 {
    if array.is_null(row) {
        return fixed_bytes(array.data_type()).unwrap_or(4);
    }
    let length = |length: usize| (length as u64).saturating_add(4);
    match array.data_type() {
        DataType::Utf8 => length(array.as_string::<i32>().value(row).len()),
        DataType::LargeUtf8 => length(array.as_string::<i64>().value(row).len()),
        DataType::Utf8View => length(array.as_string_view().value(row).len()),
        DataType::Binary => length(array.as_binary::<i32>().value(row).len()),
        DataType::LargeBinary => length(array.as_binary::<i64>().value(row).len()),
        DataType::BinaryView => length(array.as_binary_view().value(row).len()),
        DataType::List(_) => items_bytes(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => items_bytes(&array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => items_bytes(&array.as_fixed_size_list().value(row)),
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter().map(|column| value_bytes(column, row));
            fields.fold(1, u64::saturating_add)
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            key(dictionary.keys(), row).map_or(4, |key| value_bytes(dictionary.values(), key))
        }
        other => fixed_bytes(other).unwrap_or(1),
    }
}

/// The index in the dictionary of a row that is not null.
fn key(keys: &dyn Array, row: usize) -> Option<usize> {
    macro_rules! of_type {
        ($type:ty, $keys:expr, $row:expr) => {
            usize::try_from($keys.as_primitive::<$type>().value($row)).ok()
        };
    }
    downcast_integer! {
        keys.data_type() => (of_type, keys, row),
        _ => None
    }
}

/// The bytes of the items of a list.
fn items_bytes(items: &ArrayRef) -> u64 {
    let bytes = match fixed_bytes(items.data_type()) {
        Some(width) => width.saturating_mul(items.len() as u64),
        None => (0..items.len()).map(|item| value_bytes(items, item)).fold(0, u64::saturating_add),
    };
    bytes.saturating_add(4)
}

/// The bytes of a value of a fixed width.
fn fixed_bytes(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::FixedSizeList(item, size) => {
            fixed_bytes(item.data_type())?.checked_mul(u64::try_from(*size).unwrap_or(0))
        }
        DataType::FixedSizeBinary(width) => u64::try_from(*width).ok(),
        DataType::Boolean | DataType::Null => Some(1),
        other => other.primitive_width().map(|width| width as u64),
    }
}
