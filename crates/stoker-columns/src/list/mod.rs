//! Lists of a fixed length whose elements are no numbers, such as booleans or other lists, and lists of any length of
//! values that are no numbers.

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, DataType, Field};

use crate::ragged::Ragged;
use crate::structs::{holds_file, is_binary};
use crate::tensor::{fit_elements, numpy_shape};
use crate::{ColumnKind, HEAVY_ROW_BYTES, NumpyShape, TensorType, fixed_row_bytes};

/// The kind of lists.
pub struct List;

impl ColumnKind for List {
    fn name(&self) -> &'static str {
        "list"
    }

    fn holds(&self, field: &Field) -> bool {
        match field.data_type() {
            DataType::List(_) | DataType::LargeList(_) => !Ragged.holds(field),
            DataType::FixedSizeList(..) => TensorType::of(field).is_none(),
            _ => false,
        }
    }

    /// Lists of files are as heavy as their files.
    fn is_heavy(&self, field: &Field) -> bool {
        match field.data_type() {
            DataType::List(item) | DataType::LargeList(item) => {
                is_binary(item.data_type()) || holds_file(item.data_type())
            }
            _ => fixed_row_bytes(field.data_type()).is_some_and(|bytes| bytes > HEAVY_ROW_BYTES),
        }
    }

    fn label(&self, field: &Field) -> String {
        match self.numpy(field) {
            NumpyShape { dtype: Some(dtype), shape, .. } => format!("list {dtype}{shape:?}"),
            _ => "list".into(),
        }
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        numpy_shape(field)
    }

    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        fit_elements(field, column)
    }
}
