//! What the metadata of a column of compressed tensors says.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use stoker_codec::{Codec, DICTIONARY_BYTES_MAX, Dictionary, Dtype, RowType};

use super::is_compressed_tensor;
use crate::numpy::{NUMBERS, number_name};
use crate::tensor::{Dimensions, parameters};
use crate::{
    CODEC_KEY, DICTIONARY_KEY, DIM_NAMES_KEY, DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY,
    FIXED_SHAPE_TENSOR, KIND_COMPRESSED_TENSOR, KIND_KEY, PERMUTATION_KEY, SHAPE_KEY, SmallFloat, TensorType,
};

/// The keys that [`CompressedTensor`] reads and writes.
const OWN_KEYS: [&str; 9] = [
    KIND_KEY,
    CODEC_KEY,
    DICTIONARY_KEY,
    DTYPE_KEY,
    SHAPE_KEY,
    PERMUTATION_KEY,
    DIM_NAMES_KEY,
    EXTENSION_NAME_KEY,
    EXTENSION_METADATA_KEY,
];

/// The tensors of a column, and how they are compressed.
#[derive(Clone, Debug, PartialEq)]
pub struct CompressedTensor {
    /// How rows are compressed when they are written.
    pub codec: Codec,
    /// What small rows have in common.
    pub dictionary: Option<Dictionary>,
    pub(super) row: RowType,
    /// The sizes of the dimensions, as they are stored.
    shape: Vec<usize>,
    /// The parameters `permutation` and `dim_names` of `arrow.fixed_shape_tensor`, as JSON.
    permutation: Option<Value>,
    dim_names: Option<Value>,
    /// The metadata that says nothing about the tensors.
    others: HashMap<String, String>,
}

impl CompressedTensor {
    /// Returns what the metadata of a column says; `None` for a column of another kind.
    ///
    /// # Errors
    /// Metadata that is damaged, as text for users: shapes that overflow, unknown codecs and types.
    pub fn try_of(field: &Field) -> Result<Option<Self>, String> {
        if !is_compressed_tensor(field) {
            return Ok(None);
        }
        let metadata = field.metadata();
        let text = |key: &str| metadata.get(key).ok_or_else(|| format!("its metadata has no {key}"));
        let json = |key: &str| match metadata.get(key) {
            None => Ok(None),
            Some(text) => match serde_json::from_str::<Value>(text) {
                Ok(value) => Ok(Some(value)),
                Err(error) => Err(format!("its metadata {key} is {text:.80}, which is no JSON: {error}")),
            },
        };
        if !matches!(field.data_type(), DataType::LargeBinary | DataType::Binary | DataType::BinaryView) {
            return Err(format!("its type is {}, and frames are binary values", field.data_type()));
        }
        let codec = text(CODEC_KEY)?.parse::<Codec>().map_err(|error| format!("its metadata {CODEC_KEY}: {error}"))?;
        let name = text(DTYPE_KEY)?;
        let dtype =
            Dtype::named(name).ok_or_else(|| format!("its metadata {DTYPE_KEY} is {name:.80}, no known type"))?;
        let sizes = text(SHAPE_KEY)?;
        let shape: Vec<usize> = serde_json::from_str(sizes)
            .map_err(|error| format!("its metadata {SHAPE_KEY} is {sizes:.80}, no list of sizes: {error}"))?;
        let row = RowType::try_new(dtype, &shape).map_err(|error| format!("its metadata {SHAPE_KEY}: {error}"))?;
        let (permutation, dim_names) = (json(PERMUTATION_KEY)?, json(DIM_NAMES_KEY)?);
        let dictionary = match metadata.get(DICTIONARY_KEY).map(|text| dictionary(text)) {
            None => None,
            Some(Ok(dictionary)) => Some(dictionary),
            Some(Err(reason)) => return Err(format!("its metadata {DICTIONARY_KEY}: {reason}")),
        };
        let others = others(metadata);
        let tensor = Self { codec, dictionary, row, shape, permutation, dim_names, others };
        match Dimensions::parse(&tensor.parameters(), tensor.shape.len()) {
            Some(_) => Ok(Some(tensor)),
            None => {
                Err(format!("its metadata {PERMUTATION_KEY} or {DIM_NAMES_KEY} does not fit the shape {sizes:.80}"))
            }
        }
    }

    /// Returns what the compressed column of a column of tensors or vectors is.
    ///
    /// # Errors
    /// A column of other values, and tensors that cannot be compressed, as text for users.
    pub fn try_new(plain: &Field, codec: Codec) -> Result<Self, String> {
        let found = || format!("{} values cannot be compressed row by row", plain.data_type());
        let TensorType { element, shape } = TensorType::of(plain).ok_or_else(found)?;
        let dtype = match SmallFloat::of(plain) {
            Some(float) => Dtype::named(float.name()),
            None => number_name(&element).and_then(Dtype::named),
        };
        let row = RowType::try_new(dtype.ok_or_else(found)?, &shape).map_err(|error| error.to_string())?;
        let parameter = |key: &str| parameters(plain)?.get(key).filter(|value| !value.is_null()).cloned();
        let is_tensor = plain.metadata().contains_key(EXTENSION_NAME_KEY);
        let of_tensor = |key: &str| if is_tensor { parameter(key) } else { None };
        let (permutation, dim_names) = (of_tensor("permutation"), of_tensor("dim_names"));
        Ok(Self { codec, dictionary: None, row, shape, permutation, dim_names, others: others(plain.metadata()) })
    }

    /// Whether a column of tensors or vectors has the rows of this one.
    pub fn has_rows_of(&self, plain: &Field) -> bool {
        Self::try_new(plain, self.codec).is_ok_and(|other| {
            let names = [&self.dim_names, &other.dim_names];
            let same_names = names.iter().any(|names| names.is_none()) || names[0] == names[1];
            (self.row, &self.shape, &self.permutation) == (other.row, &other.shape, &other.permutation) && same_names
        })
    }

    /// Returns the compressed column, which has no nulls.
    pub fn to_field(&self, name: &str) -> Field {
        let json = |value: &Value| value.to_string();
        let own = [
            (KIND_KEY, Some(KIND_COMPRESSED_TENSOR.to_string())),
            (CODEC_KEY, Some(self.codec.to_string())),
            (DICTIONARY_KEY, self.dictionary.as_ref().map(|dictionary| STANDARD.encode(dictionary.bytes()))),
            (DTYPE_KEY, Some(self.row.dtype().name().to_string())),
            (SHAPE_KEY, Some(serde_json::json!(self.shape).to_string())),
            (PERMUTATION_KEY, self.permutation.as_ref().map(json)),
            (DIM_NAMES_KEY, self.dim_names.as_ref().map(json)),
        ];
        let mut metadata = self.others.clone();
        metadata.extend(own.into_iter().filter_map(|(key, value)| Some((key.to_string(), value?))));
        Field::new(name, DataType::LargeBinary, false).with_metadata(metadata)
    }

    /// Returns the column of tensors that the rows become: not null, with the extension type of tensors.
    pub fn tensor_field(&self, name: &str) -> Field {
        let mut metadata = self.others.clone();
        metadata.insert(EXTENSION_NAME_KEY.into(), FIXED_SHAPE_TENSOR.into());
        metadata.insert(EXTENSION_METADATA_KEY.into(), self.parameters().to_string());
        if SmallFloat::named(self.row.dtype().name()).is_some() {
            metadata.insert(DTYPE_KEY.into(), self.row.dtype().name().into());
        }
        let item = Arc::new(Field::new("item", self.element(), true));
        let length = i32::try_from(self.row.num_elements()).unwrap_or(i32::MAX);
        Field::new(name, DataType::FixedSizeList(item, length), false).with_metadata(metadata)
    }

    /// Returns the Arrow type in which elements are stored.
    pub fn element(&self) -> DataType {
        let name = self.row.dtype().name();
        let small = SmallFloat::named(name).map(SmallFloat::storage);
        let number = || NUMBERS.iter().find(|(known, _)| *known == name).map(|(_, data_type)| data_type.clone());
        small.or_else(number).unwrap_or(DataType::UInt8)
    }

    /// What the rows are.
    pub fn row(&self) -> RowType {
        self.row
    }

    /// Describes the column for people, such as `tensor float32[128] (pco)`.
    pub(super) fn label(&self) -> String {
        let dimensions = Dimensions::parse(&self.parameters(), self.shape.len()).unwrap_or_default();
        let sizes: Vec<String> = dimensions.ordered(&self.shape).iter().map(usize::to_string).collect();
        format!("tensor {}{} ({})", self.row.dtype().name(), dimensions.label(&sizes), self.codec.name())
    }

    /// The parameters of the extension type of tensors.
    fn parameters(&self) -> Value {
        let mut parameters = serde_json::json!({ "shape": self.shape });
        for (key, value) in [("permutation", &self.permutation), ("dim_names", &self.dim_names)] {
            if let Some(value) = value {
                parameters[key] = value.clone();
            }
        }
        parameters
    }
}

/// Reads a dictionary in base64. A longer text than that of the largest dictionary is not decoded.
fn dictionary(text: &str) -> Result<Dictionary, String> {
    if text.len() > DICTIONARY_BYTES_MAX.div_ceil(3) * 4 {
        return Err(format!("its {} characters are more than a dictionary has", text.len()));
    }
    let bytes = STANDARD.decode(text).map_err(|error| format!("it is no base64: {error}"))?;
    Dictionary::parse(&bytes).map_err(|error| error.to_string())
}

/// The metadata that says nothing about tensors, frames, and the encodings of Lance.
fn others(metadata: &HashMap<String, String>) -> HashMap<String, String> {
    let is_other = |key: &str| !OWN_KEYS.contains(&key) && !key.starts_with("lance-encoding:");
    metadata.iter().filter(|(key, _)| is_other(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
