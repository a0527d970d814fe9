//! Columns that an ingest compresses: `image=zstd:9`, `embedding=pco`.

use std::str::FromStr;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use serde::{Serialize, Serializer};
use stoker_codec::Codec;
use stoker_columns::{chosen_codec, is_compressed_tensor, may_have_dictionaries, with_codec, with_dictionaries};

use crate::{Error, Result};

/// The bytes of rows of which the dictionaries of small rows are made, as far as a source has so many.
pub(crate) const DICTIONARY_ROWS_BYTES: usize = 4 << 20;

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

/// Returns the columns of a new table that may get dictionaries, as their rows are small.
pub(crate) fn small_columns(schema: &Schema) -> Vec<String> {
    let is_small = |field: &&Arc<Field>| may_have_dictionaries(&Schema::new(vec![(*field).clone()]));
    schema.fields().iter().filter(is_small).map(|field| field.name().clone()).collect()
}

/// Returns the schema of a new table whose columns of small compressed tensors have dictionaries, which are made of some
/// rows of these columns. They are part of the schema before the first unit is written, and the same rows give the same
/// dictionaries, so that all units of a run have them, and a resumed run has those of its first attempt.
pub(crate) fn with_dictionaries_of(schema: &SchemaRef, rows: &RecordBatch) -> SchemaRef {
    let known =
        schema.fields().iter().filter_map(|field| Some((field.clone(), rows.schema().index_of(field.name()).ok()?)));
    let (fields, indices): (Vec<Arc<Field>>, Vec<usize>) = known.unzip();
    let Ok(rows) = rows.project(&indices) else { return schema.clone() };
    let made = with_dictionaries(&Schema::new(fields), &rows);
    let field =
        |field: &Arc<Field>| made.field_with_name(field.name()).map_or(field.clone(), |made| Arc::new(made.clone()));
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
