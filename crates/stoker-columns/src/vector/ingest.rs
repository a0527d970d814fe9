//! Vectors from lists of numbers.

use arrow_schema::{DataType, Field};

use crate::ingest::plain;
use crate::metadata::kept_metadata;
use crate::tensor::{FromLists, dense_field};
use crate::{EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, Ingest, Mismatch};

/// How a column of lists becomes a column of vectors of this length.
///
/// # Errors
/// A column that has no lists of numbers.
pub fn declared(field: &Field, length: usize) -> Result<Ingest, Mismatch> {
    let element = match plain(field.data_type()) {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if item.data_type().primitive_width().is_some() =>
        {
            item.data_type().clone()
        }
        other => return Err(Mismatch::new(None, format!("a list of {length} numbers"), other.to_string())),
    };
    let mut metadata = kept_metadata(field);
    metadata.retain(|key, _| key != EXTENSION_NAME_KEY && key != EXTENSION_METADATA_KEY);
    let field = dense_field(field.name(), element, length).with_metadata(metadata);
    Ok(Ingest::new(field, FromLists { length }))
}
