//! Compressed tensors: a frame of `stoker-codec` for each row. Clients decode them to the tensors that they were.
//!
//! The metadata [`KIND_KEY`] = [`KIND_COMPRESSED_TENSOR`] marks the columns, whose type is LargeBinary. Codec, type of
//! elements and shape are metadata, too; `FORMAT.md` of `stoker-codec` lists the keys.

mod chosen;
mod frames;
mod layout;
mod rows;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, Field};

pub use chosen::{chosen_codec, with_codec};
pub use layout::CompressedTensor;
pub(crate) use rows::in_parts;

use crate::kind::of_type;
use crate::{ColumnKind, KIND_COMPRESSED_TENSOR, KIND_KEY, Mismatch, NumpyShape, Storage};

/// The kind of compressed tensors.
pub struct Compressed;

/// Returns whether a column is marked as one of compressed tensors. Its metadata may still be damaged.
pub fn is_compressed_tensor(field: &Field) -> bool {
    field.metadata().get(KIND_KEY).map(String::as_str) == Some(KIND_COMPRESSED_TENSOR)
}

impl ColumnKind for Compressed {
    fn name(&self) -> &'static str {
        "compressed_tensor"
    }

    fn holds(&self, field: &Field) -> bool {
        is_compressed_tensor(field)
    }

    fn label(&self, field: &Field) -> String {
        match CompressedTensor::try_of(field) {
            Ok(Some(tensor)) => tensor.label(),
            Ok(None) | Err(_) => "compressed tensor (its metadata is damaged)".into(),
        }
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        of_type(field).numpy(field)
    }

    fn treated_as(&self, field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(of_type(field))
    }

    /// Frames are compressed already.
    fn storage(&self, field: &Field) -> Storage {
        Storage { compression: Some("none"), ..of_type(field).storage(field) }
    }

    /// Compresses tensors; frames stay as they are.
    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let DataType::FixedSizeList(..) = column.data_type() else { return Ok(column.clone()) };
        let fail = |error: String| ArrowError::InvalidArgumentError(format!("column {}: {error}", field.name()));
        let Some(tensor) = CompressedTensor::try_of(field).map_err(fail)? else { return Ok(column.clone()) };
        tensor.compress(column).map_err(|mismatch| fail(mismatch.to_string()))
    }

    /// Checks that each value that is not null begins as a frame of the column. Frames are not decoded.
    fn check(&self, field: &Field, column: &ArrayRef) -> Result<(), Mismatch> {
        match CompressedTensor::try_of(field) {
            Ok(Some(tensor)) => tensor.check_frames(column),
            Ok(None) => Ok(()),
            Err(reason) => Err(Mismatch::new(None, "a compressed tensor", reason)),
        }
    }
}
