//! Columns that an ingest compresses: `image=zstd:9`, `embedding=pco`.

use std::str::FromStr;
use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Serialize, Serializer};
use stoker_codec::Codec;
use stoker_columns::{chosen_codec, is_compressed_tensor, with_codec};

use crate::{Error, Result};

/// The option of the command line.
const OPTION: &str = "--compress";

/// A column that is compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedColumn {
    /// The name of the column.
    pub column: String,
    /// How its values are compressed.
    pub codec: Codec,
}

impl FromStr for CompressedColumn {
    type Err = Error;

    /// Parses `COLUMN=CODEC` or `COLUMN=CODEC:LEVEL`.
    fn from_str(text: &str) -> Result<Self> {
        match text.rsplit_once('=') {
            Some((column, codec)) if !column.trim().is_empty() => {
                let codec =
                    codec.parse().map_err(|error: stoker_codec::Error| Error::option(OPTION, error.to_string()))?;
                Ok(Self { column: column.trim().into(), codec })
            }
            _ => Err(Error::option(OPTION, format!("{text:?} should be COLUMN=CODEC[:LEVEL], such as image=zstd:9"))),
        }
    }
}

impl Serialize for CompressedColumn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{}={}", self.column, self.codec))
    }
}

/// Returns the schema with which rows are written. A table to which they are appended decides about its columns: those that
/// it does not compress stay plain.
///
/// # Errors
/// [`Error::InvalidOption`] for a column that does not exist or is named twice, and for a codec that does not fit its column.
pub(crate) fn written_schema(
    schema: &SchemaRef,
    compress: &[CompressedColumn],
    appended_to: Option<&Schema>,
) -> Result<SchemaRef> {
    let mut fields: Vec<Arc<Field>> = schema.fields().to_vec();
    for (number, CompressedColumn { column, codec }) in compress.iter().enumerate() {
        let Ok(index) = schema.index_of(column) else {
            let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(Error::option(OPTION, format!("there is no column {column}; columns: {}", names.join(", "))));
        };
        if compress.iter().take(number).any(|before| before.column == *column) {
            return Err(Error::option(OPTION, format!("column {column} is named twice")));
        }
        let chosen = chosen_codec(&with_codec(&fields[index], &codec.to_string()));
        let chosen = chosen.map_err(|reason| Error::option(OPTION, reason))?;
        let theirs = appended_to.and_then(|table| table.field_with_name(column).ok());
        if theirs.is_none_or(is_compressed_tensor)
            && let Some(chosen) = chosen
        {
            fields[index] = Arc::new(chosen);
        }
    }
    Ok(Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())))
}
