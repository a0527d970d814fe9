//! bfloat16, an element type that Arrow lacks: its bits are stored as UInt16.

use arrow_schema::Field;

use crate::DTYPE_KEY;

/// The value of [`DTYPE_KEY`] for bfloat16.
pub const BFLOAT16: &str = "bfloat16";

/// Returns whether the metadata of a column says that its numbers are bfloat16.
pub fn is_bfloat16(field: &Field) -> bool {
    field.metadata().get(DTYPE_KEY).is_some_and(|name| name == BFLOAT16)
}
