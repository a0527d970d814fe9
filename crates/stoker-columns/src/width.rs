//! The width of values.

use arrow_schema::DataType;

/// Columns with more bytes per row than this are heavy.
pub const HEAVY_ROW_BYTES: usize = 1024;

/// Returns the bytes per row of a fixed-width type, or `None` for a type of variable width. A boolean, which Arrow
/// stores as one bit, counts as one byte.
pub fn fixed_row_bytes(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeList(item, length) => {
            fixed_row_bytes(item.data_type())?.checked_mul(usize::try_from(*length).ok()?)
        }
        DataType::FixedSizeBinary(length) => usize::try_from(*length).ok(),
        DataType::Boolean => Some(1),
        DataType::Struct(fields) => {
            fields.iter().map(|field| fixed_row_bytes(field.data_type())).sum::<Option<usize>>()
        }
        other => other.primitive_width(),
    }
}
