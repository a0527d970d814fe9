//! The columns that features of Hugging Face's `datasets` declare
//! (<https://huggingface.co/docs/datasets/about_dataset_features>).

mod class_names;
mod media;

use arrow_schema::{DataType, Field, Schema};
use serde_json::{Map, Value};
use stoker_columns::{TensorSpec, encoded_image, encoded_video, ingest, tensor};

use self::class_names::class_names;
use self::media::media;
use crate::Error;
use crate::table_columns::{SourceColumn, audio};

/// The key of a schema's metadata under which `datasets` writes features, in Arrow and Parquet files.
pub const HUGGING_FACE_KEY: &str = "huggingface";

/// A feature that does not fit its column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {reason}")]
pub struct FeatureMismatch {
    /// The column, or `*` for all.
    pub column: String,
    /// What is wrong.
    pub reason: String,
}

impl FeatureMismatch {
    fn new(column: &str, reason: impl Into<String>) -> Self {
        Self { column: column.into(), reason: reason.into() }
    }

    /// Names the file with the column.
    pub(crate) fn in_file(self, file: &str) -> Error {
        Error::Column { file: file.into(), column: self.column, reason: self.reason }
    }
}

/// Decides how the columns of a file with features become columns of a table.
///
/// `features` is the value of [`HUGGING_FACE_KEY`] in the metadata of a schema: JSON with `{"info": {"features": …}}`, where
/// each column has an object with `_type`.
///
/// | feature | column |
/// |---|---|
/// | `Image` | encoded images |
/// | `Video` | encoded videos |
/// | `Audio` | the bytes of files |
/// | `ClassLabel` | `int64`, and text `<name>_name` with the names, if no column has that name; -1 is no label |
/// | `Array2D` to `Array5D` | tensors of the declared type; without a size of the first dimension, lists |
/// | other features, columns without one | as their type is ingested |
///
/// A column of files has structs with `bytes` and `path`, whose bytes are taken. A path without bytes is refused, row by
/// row: the caller may have read the file before, and have replaced the struct by its bytes.
///
/// # Errors
/// JSON that has no features, and features that contradict the type of their column.
pub fn feature_columns(features: &str, schema: &Schema) -> Result<Vec<SourceColumn>, FeatureMismatch> {
    let json: Value = serde_json::from_str(features).map_err(|error| FeatureMismatch::new("*", error.to_string()))?;
    let features = json.get("info").and_then(|info| info.get("features"));
    let empty = Map::new();
    let features = match features {
        Some(Value::Object(features)) => features,
        Some(Value::Null) | None => &empty,
        Some(_) => return Err(FeatureMismatch::new("*", "the features are no object")),
    };
    if let Some((name, _)) = features.iter().find(|(name, _)| schema.field_with_name(name).is_err()) {
        return Err(FeatureMismatch::new(name, "the features have this column, and the file does not"));
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let feature = features.get(field.name()).unwrap_or(&Value::Null);
        columns.extend(columns_of(feature, field, schema)?);
    }
    Ok(columns)
}

/// Returns the columns that are made of one column.
fn columns_of(feature: &Value, field: &Field, schema: &Schema) -> Result<Vec<SourceColumn>, FeatureMismatch> {
    let name = field.name();
    let kind = feature.get("_type").and_then(Value::as_str).unwrap_or_default();
    let ingest = match kind {
        "Image" => media(encoded_image::declared(field)),
        "Video" => media(encoded_video::declared(field)),
        "Audio" => media(audio(field)),
        "Array2D" | "Array3D" | "Array4D" | "Array5D" => match tensor_spec(feature, kind) {
            Ok(Some(spec)) => tensor::declared(name, &spec),
            Ok(None) => ingest(schema, field, false),
            Err(reason) => return Err(FeatureMismatch::new(name, format!("{kind}: {reason}"))),
        },
        "ClassLabel" => {
            let number = Field::new(name, DataType::Int64, field.is_nullable());
            let number = ingest(schema, &number, false);
            if !number.conversion.accepts(&number.field, field.data_type()) {
                let reason = format!("ClassLabel: expected int64, found {}", field.data_type());
                return Err(FeatureMismatch::new(name, reason));
            }
            let names = class_names(feature, field).map_err(|reason| FeatureMismatch::new(name, reason))?;
            let names = names.filter(|names| schema.field_with_name(names.field.name()).is_err());
            let columns = [number].into_iter().chain(names);
            return Ok(columns.map(|ingest| SourceColumn { source: name.clone(), ingest }).collect());
        }
        _ => ingest(schema, field, kind.is_empty()),
    };
    if !ingest.conversion.accepts(&ingest.field, field.data_type()) {
        let expected = ingest.conversion.expected(&ingest.field);
        return Err(FeatureMismatch::new(name, format!("{kind}: expected {expected}, found {}", field.data_type())));
    }
    Ok(vec![SourceColumn { source: name.clone(), ingest }])
}

/// The type and shape of `{"shape": [3, 4], "dtype": "float32", "_type": "Array2D"}`; `None` if rows differ in the size of
/// the first dimension, which is null.
fn tensor_spec(feature: &Value, kind: &str) -> Result<Option<TensorSpec>, String> {
    let (Some(Value::Array(shape)), Some(Value::String(dtype))) = (feature.get("shape"), feature.get("dtype")) else {
        return Err("the feature has no shape and dtype".into());
    };
    let num_dims = kind.bytes().find(u8::is_ascii_digit).map_or(0, |digit| usize::from(digit - b'0'));
    if shape.len() != num_dims {
        return Err(format!("the shape has {} dimensions", shape.len()));
    }
    if shape.first() == Some(&Value::Null) {
        return Ok(None);
    }
    let sizes: Option<Vec<String>> = shape.iter().map(|size| size.as_u64().map(|size| size.to_string())).collect();
    let sizes = sizes.ok_or("the sizes of the shape are no whole numbers")?;
    TensorSpec::parse(&format!("{dtype}[{}]", sizes.join(","))).map(Some)
}
