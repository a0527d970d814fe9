//! Vectors: a fixed number of numbers for each row, without an extension type, such as embeddings.

mod ingest;

use arrow_schema::Field;

pub use ingest::declared;

use crate::metadata::has_tensor_name;
use crate::tensor::{Tensor, numpy_shape, shape_label};
use crate::{ColumnKind, NumpyShape, TensorType};

/// The kind of vectors.
pub struct Vector;

impl ColumnKind for Vector {
    fn name(&self) -> &'static str {
        "vector"
    }

    fn holds(&self, field: &Field) -> bool {
        !has_tensor_name(field) && TensorType::of(field).is_some()
    }

    fn label(&self, field: &Field) -> String {
        format!("vector {}", shape_label(field).unwrap_or_default())
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        numpy_shape(field)
    }

    fn treated_as(&self, _field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(&Tensor)
    }
}
