//! Blobs of Lance, whose bytes lie outside the column's pages. Stoker describes the columns and does not read them.

use arrow_array::ArrayRef;
use arrow_schema::{ArrowError, Field};

use crate::kind::of_type;
use crate::{ColumnKind, EXTENSION_NAME_KEY, Ingest, NumpyShape};

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

    fn is_heavy(&self, field: &Field) -> bool {
        of_type(field).is_heavy(field)
    }

    fn canonical(&self, field: &Field) -> Field {
        of_type(field).canonical(field)
    }

    fn fit(&self, field: &Field, column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        of_type(field).fit(field, column)
    }

    fn ingest(&self, field: Field) -> Ingest {
        of_type(&field).ingest(field)
    }
}
