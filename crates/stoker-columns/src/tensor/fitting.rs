//! Extension types of computed columns.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};

use super::{TensorType, declared_shape, numpy_shape};
use crate::metadata::{has_tensor_name, has_variable_tensor_name};
use crate::ragged::VariableShape;
use crate::{
    CODEC_KEY, DIM_NAMES_KEY, DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, KIND_KEY, PERMUTATION_KEY,
    SHAPE_KEY, is_compressed_tensor,
};

/// Returns the field without tensor metadata if its type is not that tensor. The casts of queries keep the metadata of
/// their input.
pub fn fitting(field: &FieldRef) -> FieldRef {
    let fits = match field {
        _ if has_tensor_name(field) => {
            let is_of_flags = || declared_shape(field).is_some() && numpy_shape(field).dtype.is_some();
            TensorType::of(field).is_some() || is_of_flags()
        }
        _ if has_variable_tensor_name(field) => VariableShape::of(field).is_some(),
        _ if is_compressed_tensor(field) => {
            matches!(field.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
        }
        _ => true,
    };
    if fits {
        return field.clone();
    }
    let mut metadata = field.metadata().clone();
    for key in [EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY, DTYPE_KEY] {
        metadata.remove(key);
    }
    if is_compressed_tensor(field) {
        for key in [KIND_KEY, CODEC_KEY, SHAPE_KEY, PERMUTATION_KEY, DIM_NAMES_KEY] {
            metadata.remove(key);
        }
    }
    Arc::new(field.as_ref().clone().with_metadata(metadata))
}

/// Applies [`fitting`] to all columns of a schema.
pub fn fitting_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(fitting).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
