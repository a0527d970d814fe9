//! Extension types of result columns.

use std::sync::Arc;

use arrow_schema::{FieldRef, Schema, SchemaRef};
use stoker_types::{DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, TensorType};

/// Returns the field without tensor metadata if its type is not that tensor. DataFusion's casts keep the metadata of
/// their input.
pub(crate) fn fitting(field: &FieldRef) -> FieldRef {
    let is_tensor = field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR);
    if !is_tensor || TensorType::of(field).is_some() {
        return field.clone();
    }
    let mut metadata = field.metadata().clone();
    for key in [EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY, DTYPE_KEY] {
        metadata.remove(key);
    }
    Arc::new(field.as_ref().clone().with_metadata(metadata))
}

/// Applies [`fitting`] to all columns of a schema.
pub(crate) fn fitting_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(fitting).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
