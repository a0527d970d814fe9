//! The keys of field metadata that say what the values of a column mean.

use std::collections::HashMap;

use arrow_schema::Field;

/// Arrow's field metadata key for the name of an extension type.
pub const EXTENSION_NAME_KEY: &str = "ARROW:extension:name";
/// Arrow's field metadata key for the parameters of an extension type.
pub const EXTENSION_METADATA_KEY: &str = "ARROW:extension:metadata";
/// The canonical extension type of tensors that have the same shape in all rows. Their storage is `FixedSizeList<T,
/// product of shape>`.
pub const FIXED_SHAPE_TENSOR: &str = "arrow.fixed_shape_tensor";
/// The canonical extension type of tensors of which each has its own shape, with as many dimensions in all rows. Their
/// storage is `Struct<data: List<T>, shape: FixedSizeList<Int32, number of dimensions>>`.
pub const VARIABLE_SHAPE_TENSOR: &str = "arrow.variable_shape_tensor";
/// Field metadata key for Stoker's column kinds.
pub const KIND_KEY: &str = "stoker.kind";
/// Value of [`KIND_KEY`] for LargeBinary columns with JPEG, PNG or WebP files.
pub const KIND_ENCODED_IMAGE: &str = "encoded_image";
/// Value of [`KIND_KEY`] for LargeBinary columns with the frames of compressed tensors.
pub const KIND_COMPRESSED_TENSOR: &str = "compressed_tensor";
/// Field metadata key for how the values of a column are compressed, such as `pco:8`. On a column of other kinds than
/// compressed tensors, it chooses how the column is written (`chosen_codec`).
pub const CODEC_KEY: &str = "stoker.codec";
/// Field metadata key for the dictionary with which small compressed tensors are compressed, in base64.
pub const DICTIONARY_KEY: &str = "stoker.dictionary";
/// Field metadata key for the sizes of the stored dimensions of compressed tensors, as JSON.
pub const SHAPE_KEY: &str = "stoker.shape";
/// Field metadata keys for the parameters `permutation` and `dim_names` of compressed tensors, as JSON.
pub const PERMUTATION_KEY: &str = "stoker.permutation";
/// See [`PERMUTATION_KEY`].
pub const DIM_NAMES_KEY: &str = "stoker.dim_names";
/// Field metadata key for what the values of a column were before they were written with an error, and for the largest
/// error, as JSON (`LossyColumn`).
pub const LOSSY_KEY: &str = "stoker.lossy";
/// Field metadata key that overrides the rule for heavy columns: `true` or `false`.
pub const HEAVY_KEY: &str = "stoker.heavy";
/// Field metadata key for element types that Arrow lacks, such as `bfloat16` on UInt16 storage (`SmallFloat`).
pub const DTYPE_KEY: &str = "stoker.dtype";

/// Field metadata key that names the boolean column with the mask of a column: false where a row is null, whose values
/// are zeros.
pub const MASK_KEY: &str = "stoker.mask";

/// Field metadata key of a column of videos that names the column with the indexes of their frames.
pub const VIDEO_INDEX_KEY: &str = "stoker.video_index";
/// Field metadata key of a column with indexes of videos that names the column of the videos.
pub const VIDEO_KEY: &str = "stoker.video";

/// The beginning of the keys that are Stoker's own.
const OWN_PREFIX: &str = "stoker.";

/// The keys that tell what values of a type mean.
const MEANING_KEYS: [&str; 7] =
    [EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY, KIND_KEY, DTYPE_KEY, SHAPE_KEY, PERMUTATION_KEY, DICTIONARY_KEY];

/// Returns whether the metadata of two fields gives values of the same type the same meaning.
pub fn same_meaning(left: &Field, right: &Field) -> bool {
    MEANING_KEYS.iter().all(|key| same_value(left.metadata().get(*key), right.metadata().get(*key)))
}

/// Returns whether two values of a metadata key are equivalent: parameters of extension types are JSON, in which
/// spacing does not matter.
fn same_value(left: Option<&String>, right: Option<&String>) -> bool {
    let json = |text: &String| serde_json::from_str::<serde_json::Value>(text).ok();
    match (left, right) {
        (Some(left), Some(right)) => left == right || json(left).is_some_and(|left| Some(left) == json(right)),
        (left, right) => left == right,
    }
}

/// Returns whether the extension type of a field is that of tensors.
pub(crate) fn has_tensor_name(field: &Field) -> bool {
    field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR)
}

/// Returns whether the extension type of a field is that of tensors of which each has its own shape.
pub(crate) fn has_variable_tensor_name(field: &Field) -> bool {
    field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(VARIABLE_SHAPE_TENSOR)
}

/// Returns the metadata that has a meaning for Stoker, without encodings and field numbers of other systems.
pub(crate) fn kept_metadata(field: &Field) -> HashMap<String, String> {
    let is_tensor = has_tensor_name(field) || has_variable_tensor_name(field);
    let kept = |key: &str| {
        key.starts_with(OWN_PREFIX) || is_tensor && (key == EXTENSION_NAME_KEY || key == EXTENSION_METADATA_KEY)
    };
    field.metadata().iter().filter(|(key, _)| kept(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}
