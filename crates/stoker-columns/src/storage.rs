//! How values are stored.

use arrow_schema::{DataType, Field};

use crate::{fixed_row_bytes, is_heavy};

/// The minimum width of values that Lance's writer stores row by row; it puts narrower values into blocks of several
/// rows. In bytes.
const ROW_BY_ROW_BYTES_MIN: usize = 256;

/// How the values of a column are written and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The bytes of a row whose values may be stored as plain row-major bytes, which are read without a decoder; `None`
    /// for values that Lance's decoder reads.
    pub dense_row_bytes: Option<usize>,
    /// Whether values are so wide that Lance's writer stores them row by row without being told to.
    pub is_row_by_row: bool,
    /// Whether a null in a row or in an element is forbidden: a single one would make a page unreadable without a
    /// decoder.
    pub refuses_nulls: bool,
    /// The compression setting for values that are compressed already; `None` leaves the choice to Lance.
    pub compression: Option<&'static str>,
}

impl Storage {
    /// The storage that follows from the type of a column, and from whether the column is heavy.
    pub(crate) fn of(field: &Field) -> Self {
        let row_bytes = fixed_row_bytes(field.data_type());
        let is_dense = matches!(field.data_type(), DataType::FixedSizeList(item, _) if item.data_type().is_primitive());
        Self {
            dense_row_bytes: row_bytes.filter(|_| is_dense),
            is_row_by_row: row_bytes.is_some_and(|bytes| bytes >= ROW_BY_ROW_BYTES_MIN),
            refuses_nulls: row_bytes.is_some() && is_heavy(field),
            compression: None,
        }
    }
}
