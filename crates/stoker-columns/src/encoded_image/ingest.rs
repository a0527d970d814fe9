//! Encoded images from binary values, and from the structs in which Hugging Face's `datasets` stores images.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, LargeBinaryArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use super::new_field;
use crate::ingest::{Conversion, plain, to_plain, to_type};
use crate::{Ingest, Mismatch};

/// The key of the schema metadata under which `datasets` stores its own types, as JSON.
const KEY: &str = "huggingface";

/// How a column of binary values, or of structs with the field `bytes`, becomes a column of encoded images.
pub fn declared(field: &Field) -> Ingest {
    Ingest::new(new_field(field.name(), field.is_nullable()), FromFiles)
}

/// Binary values, or structs with the field `bytes`, become the bytes of image files.
#[derive(Clone, Copy, Debug)]
struct FromFiles;

impl Conversion for FromFiles {
    fn accepts(&self, _field: &Field, found: &DataType) -> bool {
        match plain(found) {
            DataType::LargeBinary | DataType::FixedSizeBinary(_) => true,
            DataType::Struct(fields) => {
                fields.iter().any(|field| field.name() == "bytes" && plain(field.data_type()) == DataType::LargeBinary)
            }
            _ => false,
        }
    }

    fn expected(&self, _field: &Field) -> String {
        "binary, or a struct with the field bytes".into()
    }

    fn keeps_nulls(&self) -> bool {
        true
    }

    fn convert(&self, _field: &Field, array: &ArrayRef) -> Result<ArrayRef, Mismatch> {
        let array = to_plain(array)?;
        let Some(rows) = array.as_struct_opt() else { return to_type(&array, &DataType::LargeBinary) };
        let Some(bytes) = rows.column_by_name("bytes") else {
            return Err(Mismatch::new(None, "a struct with the field bytes", array.data_type().to_string()));
        };
        let bytes = to_type(bytes, &DataType::LargeBinary)?;
        let (offsets, values, nulls) = bytes.as_binary::<i64>().clone().into_parts();
        let nulls = NullBuffer::union(nulls.as_ref(), rows.nulls());
        Ok(Arc::new(LargeBinaryArray::new(offsets, values, nulls)))
    }
}

/// Whether a column is `struct<bytes: binary, path: string>`, and `datasets` either declares it as an image or declares
/// nothing. `datasets` stores sounds and documents in structs of the same type.
pub(super) fn is_hugging_face_image(schema: &Schema, field: &Field) -> bool {
    is_file(field.data_type()) && declared_type(schema, field.name()).is_none_or(|kind| kind == "Image")
}

/// Whether values are structs of a file's bytes and its path.
fn is_file(data_type: &DataType) -> bool {
    let DataType::Struct(fields) = data_type else { return false };
    let has = |name: &str, types: &[DataType]| {
        fields.iter().any(|field| field.name() == name && types.contains(&plain(field.data_type())))
    };
    fields.len() == 2 && has("bytes", &[DataType::LargeBinary]) && has("path", &[DataType::Utf8, DataType::LargeUtf8])
}

/// Returns the name of a column's type in `{"info": {"features": {"image": {"_type": "Image"}}}}`.
fn declared_type(schema: &Schema, column: &str) -> Option<String> {
    let json: Value = serde_json::from_str(schema.metadata().get(KEY)?).ok()?;
    json["info"]["features"][column]["_type"].as_str().map(str::to_string)
}
