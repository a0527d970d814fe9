//! Checks whether rows fit a table, and checks and adapts the columns of new tables.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use stoker_columns::{
    CompressedTensor, EXTENSION_METADATA_KEY, LossyColumn, has_nested_blobs, index_columns, is_blob, kind_of,
    same_meaning, without_blob_mark,
};

/// Lance's field metadata key for the compression.
pub const COMPRESSION_KEY: &str = "lance-encoding:compression";

/// Lance's field metadata key for the level of the compression.
pub const COMPRESSION_LEVEL_KEY: &str = "lance-encoding:compression-level";

/// Lance's field metadata key for the layout of values.
const LAYOUT_KEY: &str = "lance-encoding:structural-encoding";

/// Names of columns that Lance and searches add to those of a table: `lance_core`'s row columns, and the results of
/// searches.
const RESERVED: [&str; 8] = [
    lance_core::ROW_ID,
    lance_core::ROW_ADDR,
    lance_core::ROW_OFFSET,
    lance_core::ROW_CREATED_AT_VERSION,
    lance_core::ROW_LAST_UPDATED_AT_VERSION,
    "_distance",
    "_score",
    "_rank",
];

/// Whether no column of a table may have a name, because scans and searches add columns of this name to rows.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// Returns whether Lance may store a column's values as plain bytes, row by row.
pub fn may_be_plain(field: &Field) -> bool {
    let storage = kind_of(field).storage(field);
    storage.dense_row_bytes.is_some() && (storage.is_row_by_row || field.metadata().contains_key(LAYOUT_KEY))
}

/// Checks that no column has a reserved name. A table with such a column could be written but not read.
///
/// # Errors
/// The reason, which names the column.
pub fn check_names(schema: &Schema) -> Result<(), String> {
    let is_unwritten =
        |field: &&Arc<Field>| is_blob(field) && !field.data_type().is_binary() || has_nested_blobs(field);
    if let Some(field) = schema.fields().iter().find(is_unwritten) {
        return Err(format!(
            "column {} is of Lance's blob type, which Stoker does not write: give its values as binary",
            field.name()
        ));
    }
    match schema.fields().iter().find(|field| is_reserved_name(field.name())) {
        None => Ok(()),
        Some(field) => Err(format!(
            "the name of column {} is reserved for what scans and searches add to rows; rename the column, for example to \
             {} (reserved: {})",
            field.name(),
            field.name().trim_start_matches('_'),
            RESERVED.join(", ")
        )),
    }
}

/// Checks that rows of schema `found` can be added to a table of schema `expected`: the same columns, in any order. Tensors
/// can be added to a column that compresses them, or holds them with an error. Indexes of videos need not be there.
///
/// # Errors
/// The reason, which names the first column that does not fit.
pub fn check_schema(expected: &Schema, found: &Schema) -> Result<(), String> {
    for field in expected.fields() {
        let Ok(other) = found.field_with_name(field.name()) else {
            if index_columns(expected).any(|(index, _)| index == field.name()) {
                continue;
            }
            return Err(format!("column {} is missing", field.name()));
        };
        if !same_type(field, other) {
            let types = (describe(field), describe(other));
            return Err(format!("column {} should be {}, not {}", field.name(), types.0, types.1));
        }
    }
    if let Some(extra) = found.fields().iter().find(|field| expected.field_with_name(field.name()).is_err()) {
        return Err(format!("the table has no column {}", extra.name()));
    }
    Ok(())
}

fn same_type(expected: &Field, found: &Field) -> bool {
    if let Ok(Some(tensor)) = CompressedTensor::try_of(expected)
        && tensor.has_rows_of(found)
    {
        return !found.is_nullable();
    }
    if LossyColumn::of(expected).is_some_and(|lossy| lossy.takes(expected, found)) {
        return expected.is_nullable() || !found.is_nullable();
    }
    same_data_type(expected.data_type(), found.data_type())
        && (expected.is_nullable() || !found.is_nullable())
        && same_meaning(expected, found)
}

/// Returns whether values of type `found` can be stored as `expected` without a change. Names and nullability of the
/// items of fixed-size lists are ignored, because Lance does not keep them.
pub(crate) fn same_data_type(expected: &DataType, found: &DataType) -> bool {
    let same_child = |expected: &Field, found: &Field| {
        (expected.is_nullable() || !found.is_nullable()) && same_data_type(expected.data_type(), found.data_type())
    };
    match (expected, found) {
        (DataType::FixedSizeList(expected, length), DataType::FixedSizeList(found, found_length)) => {
            length == found_length && same_data_type(expected.data_type(), found.data_type())
        }
        (DataType::List(expected), DataType::List(found))
        | (DataType::LargeList(expected), DataType::LargeList(found)) => same_child(expected, found),
        (DataType::Struct(expected), DataType::Struct(found)) => {
            expected.len() == found.len()
                && expected.iter().zip(found).all(|(e, f)| e.name() == f.name() && same_child(e, f))
        }
        _ => expected.equals_datatype(found),
    }
}

fn describe(field: &Field) -> String {
    let extension = field.metadata().get(EXTENSION_METADATA_KEY).map(|text| format!(" {text}")).unwrap_or_default();
    let null = if field.is_nullable() { "nullable " } else { "non-null " };
    format!("{null}{}{extension}", field.data_type())
}

/// Returns the schema with the compression of their kind for columns without a setting: Lance would otherwise compress
/// encoded images again. Values that were read from blobs become those of plain columns.
pub fn with_media_uncompressed(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        let field = if is_blob(field) { Arc::new(without_blob_mark(field)) } else { field.clone() };
        let Some(compression) = kind_of(&field).storage(&field).compression else { return field };
        let mut metadata = field.metadata().clone();
        metadata.entry(COMPRESSION_KEY.into()).or_insert_with(|| compression.into());
        Arc::new(field.as_ref().clone().with_metadata(metadata))
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
