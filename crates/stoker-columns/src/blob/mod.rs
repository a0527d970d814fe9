//! Blobs of Lance, whose bytes lie outside the column's pages. They are read like binary values, and not written.

use arrow_schema::{DataType, Field};

use crate::kind::of_type;
use crate::{ColumnKind, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, NumpyShape};

/// The prefix of the names of Lance's blob extension types.
const BLOB_TYPE: &str = "lance.blob";

/// The field metadata key by which Lance marks blob columns, whatever its value is.
const BLOB_KEY: &str = "lance-encoding:blob";

/// The kind of blobs.
pub struct Blob;

/// Returns whether a column holds Lance blobs.
pub fn is_blob(field: &Field) -> bool {
    let metadata = field.metadata();
    metadata.get(EXTENSION_NAME_KEY).is_some_and(|name| name.starts_with(BLOB_TYPE)) || metadata.contains_key(BLOB_KEY)
}

/// Returns whether values of a column contain blobs, as elements of lists or members of structs.
pub fn has_nested_blobs(field: &Field) -> bool {
    let holds = |child: &Field| is_blob(child) || has_nested_blobs(child);
    match field.data_type() {
        DataType::Struct(members) => members.iter().any(|member| holds(member)),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _) => holds(item),
        _ => false,
    }
}

/// Returns the field with which a blob column is read: its values are binary, however Lance stores them.
#[must_use]
pub fn blob_as_binary(field: &Field) -> Field {
    let plain = without_blob_mark(field);
    let mut metadata = plain.metadata().clone();
    metadata.insert(BLOB_KEY.into(), "true".into());
    plain.with_data_type(DataType::LargeBinary).with_metadata(metadata)
}

/// Returns the field with which values that were read from a blob column are written: those of a plain binary column.
#[must_use]
pub fn without_blob_mark(field: &Field) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.remove(BLOB_KEY);
    if metadata.get(EXTENSION_NAME_KEY).is_some_and(|name| name.starts_with(BLOB_TYPE)) {
        metadata.remove(EXTENSION_NAME_KEY);
        metadata.remove(EXTENSION_METADATA_KEY);
    }
    field.clone().with_metadata(metadata)
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
