//! Blobs of Lance, whose bytes lie outside the column's pages. Stoker describes the columns and does not read them.

use arrow_schema::Field;

use crate::kind::of_type;
use crate::{ColumnKind, EXTENSION_NAME_KEY, NumpyShape};

/// The prefix of the names of Lance's blob extension types.
const BLOB_TYPE: &str = "lance.blob";

/// The field metadata key by which Lance marks blob columns.
const BLOB_KEY: &str = "lance-encoding:blob";

/// The kind of blobs.
pub struct Blob;

/// Returns whether a column holds Lance blobs.
pub fn is_blob(field: &Field) -> bool {
    let metadata = field.metadata();
    metadata.get(EXTENSION_NAME_KEY).is_some_and(|name| name.starts_with(BLOB_TYPE))
        || metadata.get(BLOB_KEY).is_some_and(|value| value == "true")
}

impl ColumnKind for Blob {
    fn name(&self) -> &'static str {
        "blob"
    }

    fn holds(&self, field: &Field) -> bool {
        is_blob(field)
    }

    fn label(&self, _field: &Field) -> String {
        "blob".into()
    }

    fn numpy(&self, field: &Field) -> NumpyShape {
        of_type(field).numpy(field)
    }

    fn treated_as(&self, field: &Field) -> Option<&'static dyn ColumnKind> {
        Some(of_type(field))
    }
}
