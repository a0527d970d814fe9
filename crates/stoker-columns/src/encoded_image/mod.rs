//! Encoded images: JPEG, PNG or WebP files as they are. Clients decode them to tensors on request.
//!
//! The metadata [`KIND_KEY`] = [`KIND_ENCODED_IMAGE`] marks the columns, whose type is LargeBinary where Stoker writes
//! them.

mod check;
mod ingest;

use arrow_array::ArrayRef;
use arrow_schema::{DataType, Field, Schema};

pub use ingest::declared;

use crate::kind::of_type;
use crate::{ColumnKind, Ingest, KIND_ENCODED_IMAGE, KIND_KEY, Mismatch, NumpyShape, Storage};

/// The kind of encoded images.
pub struct EncodedImage;

/// Returns whether the column holds JPEG, PNG or WebP files.
pub fn is_encoded_image(field: &Field) -> bool {
    field.metadata().get(KIND_KEY).map(String::as_str) == Some(KIND_ENCODED_IMAGE)
}

/// Returns a column of encoded images.
pub fn new_field(name: &str, nullable: bool) -> Field {
    let metadata = [(KIND_KEY.to_string(), KIND_ENCODED_IMAGE.to_string())];
    Field::new(name, DataType::LargeBinary, nullable).with_metadata(metadata.into())
}

impl ColumnKind for EncodedImage {
    fn name(&self) -> &'static str {
        "encoded_image"
    }

    fn holds(&self, field: &Field) -> bool {
        is_encoded_image(field)
    }

    fn label(&self, _field: &Field) -> String {
        "encoded image".into()
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        of_type(field).numpy(field)
    }

    fn treated_as(&self, field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(of_type(field))
    }

    /// Image files are compressed already.
    fn storage(&self, field: &Field) -> Storage {
        Storage { compression: Some("none"), ..of_type(field).storage(field) }
    }

    fn check(&self, _field: &Field, column: &ArrayRef) -> Result<(), Mismatch> {
        check::check(column)
    }

    fn recognise(&self, schema: &Schema, field: &Field) -> Option<Ingest> {
        ingest::is_hugging_face_image(schema, field).then(|| declared(field))
    }
}
