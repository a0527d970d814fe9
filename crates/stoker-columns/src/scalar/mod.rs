//! Scalars: one number, flag, time or other value for each row, and the types that no other kind knows.

mod numpy;

use arrow_schema::{DataType, Field};

use crate::{ColumnKind, NumpyShape};

/// The kind of scalars.
pub struct Scalar;

impl ColumnKind for Scalar {
    fn name(&self) -> &'static str {
        "scalar"
    }

    fn holds(&self, field: &Field) -> bool {
        !matches!(
            field.data_type(),
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::List(_)
                | DataType::LargeList(_)
                | DataType::FixedSizeList(..)
                | DataType::Struct(_)
        )
    }

    fn label(&self, field: &Field) -> String {
        let is_time = matches!(field.data_type(), DataType::Timestamp(..) | DataType::Date32 | DataType::Date64);
        if is_time { "timestamp".into() } else { "scalar".into() }
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        numpy::shape(field)
    }
}
