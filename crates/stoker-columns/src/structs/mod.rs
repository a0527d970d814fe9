//! Structs: several named values for each row.

use arrow_schema::{DataType, Field};

use crate::ragged::Ragged;
use crate::{ColumnKind, NumpyShape};

/// The kind of structs.
pub struct Structs;

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

    fn numpy(&self, field: &Field) -> NumpyShape {
        NumpyShape::objects(field)
    }
}
