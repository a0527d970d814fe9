//! Texts of any length.

use arrow_schema::{DataType, Field};

use crate::{ColumnKind, NumpyShape};

/// The kind of texts.
pub struct Text;

impl ColumnKind for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn holds(&self, field: &Field) -> bool {
        matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
    }

    fn label(&self, _field: &Field) -> String {
        "text".into()
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        NumpyShape::objects(field)
    }
}
