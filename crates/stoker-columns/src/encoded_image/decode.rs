//! The columns that decoding makes.

use arrow_schema::{DataType, Field};
use stoker_decode::ImageTransform;

use crate::TensorType;

/// Returns the column of tensors that a transform makes of a column of image files: a non-null tensor column of the same
/// name. `None` if the values of the column are no files. A mark is not needed, because queries compute columns without
/// one.
pub fn decoded(field: &Field, transform: &ImageTransform) -> Option<Field> {
    let is_files = matches!(field.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView);
    let tensor = TensorType { element: transform.element.data_type(), shape: transform.shape() };
    is_files.then(|| tensor.to_field(field.name()))
}
