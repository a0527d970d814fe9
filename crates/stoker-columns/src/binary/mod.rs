//! Bytes of any length, about which nothing more is known.

use arrow_schema::{DataType, Field};

use crate::{ColumnKind, NumpyShape};

/// The kind of binary values.
pub struct Binary;

impl ColumnKind for Binary {
    fn name(&self) -> &'static str {
        "binary"
    }

    fn holds(&self, field: &Field) -> bool {
        matches!(field.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    }

    fn label(&self, _field: &Field) -> String {
        "binary".into()
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        NumpyShape::objects(field)
    }

    /// Values may have any size, so that filters do not read them unasked.
    fn is_heavy(&self, _field: &Field) -> bool {
        true
    }
}
