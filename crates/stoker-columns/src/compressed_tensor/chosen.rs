//! The codec that a writer chooses for a column.

use arrow_schema::{DataType, Field};
use stoker_codec::Codec;

use super::{CompressedTensor, is_compressed_tensor};
use crate::lossy::chosen_lossy;
use crate::{CODEC_KEY, TensorType, is_blob, is_encoded_image};

/// Lance's field metadata keys for the compression of the values that it lays out.
const LANCE_COMPRESSION_KEY: &str = "lance-encoding:compression";
const LANCE_LEVEL_KEY: &str = "lance-encoding:compression-level";

/// Returns a column whose values are to be compressed, such as by `pco` or `zstd:7`. [`chosen_codec`] makes of it the column
/// that is written.
pub fn with_codec(field: &Field, codec: &str) -> Field {
    let mut metadata = field.metadata().clone();
    metadata.insert(CODEC_KEY.into(), codec.into());
    field.clone().with_metadata(metadata)
}

/// Returns the column that is written for one for which [`CODEC_KEY`] chooses a codec: tensors and vectors become compressed
/// tensors or, for `float16`, `bfloat16` and `jpeg`, [lossy columns](crate::LossyColumn). Other values get the setting by
/// which Lance compresses them. `None` if nothing is chosen.
///
/// # Errors
/// What is wrong with the choice, as text for users.
pub fn chosen_codec(field: &Field) -> Result<Option<Field>, String> {
    let Some(text) = field.metadata().get(CODEC_KEY).filter(|_| !is_compressed_tensor(field)) else { return Ok(None) };
    if let Some(lossy) = chosen_lossy(field, text) {
        return lossy.map(Some).map_err(|reason| format!("column {}: {reason}", field.name()));
    }
    let fail = |reason: String| Err(format!("column {} with the codec {text:.60}: {reason}", field.name()));
    let codec = match text.parse::<Codec>() {
        Ok(codec) => codec,
        Err(error) => return Err(format!("column {}: {error}", field.name())),
    };
    if TensorType::of(field).is_some() {
        return match CompressedTensor::try_new(field, codec) {
            Ok(tensor) => Ok(Some(tensor.to_field(field.name()))),
            Err(reason) => fail(reason),
        };
    }
    if is_encoded_image(field) || is_blob(field) {
        return fail("files of images are compressed already, and blobs are not compressed".into());
    }
    let level = match codec {
        Codec::Zstd { level } => Some(level.to_string()),
        Codec::Lz4 => None,
        Codec::ByteStreamSplitZstd { .. } | Codec::Pco { .. } => {
            return fail(format!("it compresses tensors and vectors; {} values take zstd or lz4", field.data_type()));
        }
    };
    if matches!(field.data_type(), DataType::FixedSizeBinary(_) | DataType::FixedSizeList(..)) {
        let reason = format!("{} values are not compressed; store them as tensors of uint8", field.data_type());
        return fail(reason);
    }
    let mut metadata = field.metadata().clone();
    metadata.remove(CODEC_KEY);
    metadata.insert(LANCE_COMPRESSION_KEY.into(), codec.name().into());
    metadata.extend(level.map(|level| (LANCE_LEVEL_KEY.to_string(), level)));
    Ok(Some(field.clone().with_metadata(metadata)))
}
