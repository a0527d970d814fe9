//! Lists of any length, and lists of a fixed length whose elements are no numbers.

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field};

use crate::tensor::{declared_shape, fit_elements};
use crate::{ColumnKind, NumpyShape, TensorType};

/// The kind of lists.
pub struct List;

impl ColumnKind for List {
    fn name(&self) -> &'static str {
        "list"
    }

    fn holds(&self, field: &Field) -> bool {
        match field.data_type() {
            DataType::List(_) | DataType::LargeList(_) => true,
            DataType::FixedSizeList(..) => TensorType::of(field).is_none(),
            _ => false,
        }
    }

    fn label(&self, _field: &Field) -> String {
        "list".into()
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        let DataType::FixedSizeList(item, length) = field.data_type() else { return NumpyShape::objects(field) };
        let length = usize::try_from(*length).unwrap_or(0);
        NumpyShape::elements(field, item.data_type(), declared_shape(field).unwrap_or_else(|| vec![length]))
    }

    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        fit_elements(field, column)
    }
}
