//! Recognises the columns in which Hugging Face's `datasets` stores images.

use arrow_schema::{DataType, Field, Schema};
use serde_json::Value;

use super::column::plain;

/// The key of the schema metadata under which `datasets` stores its own types, as JSON.
const KEY: &str = "huggingface";

/// Whether a column is `struct<bytes: binary, path: string>`, and `datasets` either declares it as an image or declares
/// nothing. `datasets` stores sounds and documents in structs of the same type.
pub(super) fn is_hugging_face_image(schema: &Schema, field: &Field) -> bool {
    is_file(field.data_type()) && declared(schema, field.name()).is_none_or(|kind| kind == "Image")
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
fn declared(schema: &Schema, column: &str) -> Option<String> {
    let json: Value = serde_json::from_str(schema.metadata().get(KEY)?).ok()?;
    json["info"]["features"][column]["_type"].as_str().map(str::to_string)
}
