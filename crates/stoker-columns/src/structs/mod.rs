//! Structs: several named values for each row.

use arrow_schema::{DataType, Field};

use crate::ragged::Ragged;
use crate::{ColumnKind, HEAVY_ROW_BYTES, NumpyShape, fixed_row_bytes};

/// The kind of structs.
pub struct Structs;

/// Returns whether values are structs with the field `bytes`, which holds binary values.
pub(crate) fn holds_file(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    fields.iter().any(|field| field.name() == "bytes" && is_binary(field.data_type()))
}

/// Returns whether values are binary values of any length.
pub(crate) fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

impl ColumnKind for Structs {
    fn name(&self) -> &'static str {
        "struct"
    }

    fn holds(&self, field: &Field) -> bool {
        matches!(field.data_type(), DataType::Struct(_)) && !Ragged.holds(field)
    }

    fn label(&self, _field: &Field) -> String {
        "struct".into()
    }

    /// Structs of a file and its path, as `datasets` stores media, are as heavy as their files.
    fn is_heavy(&self, field: &Field) -> bool {
        holds_file(field.data_type()) || fixed_row_bytes(field.data_type()).is_some_and(|bytes| bytes > HEAVY_ROW_BYTES)
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        NumpyShape::objects(field)
    }
}
