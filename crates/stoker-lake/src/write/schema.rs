//! Whether rows fit a table, and the schema of new tables.

use std::sync::Arc;

use arrow_schema::{Field, Schema, SchemaRef};
use stoker_types::{DTYPE_KEY, EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, KIND_KEY, TableName, is_encoded_image};

use crate::{Error, Result};

/// Field metadata key of Lance that chooses a compression.
pub(super) const COMPRESSION_KEY: &str = "lance-encoding:compression";

/// Checks that rows of schema `found` can be added to a table of schema `expected`: the same columns, in any
/// order.
pub(crate) fn check_schema(table: &TableName, expected: &Schema, found: &Schema) -> Result<()> {
    let fail = |reason| Err(Error::InvalidData { table: table.to_string(), reason });
    for field in expected.fields() {
        let Ok(other) = found.field_with_name(field.name()) else {
            return fail(format!("column {} is missing", field.name()));
        };
        if !same_type(field, other) {
            let types = (describe(field), describe(other));
            return fail(format!("column {} should be {}, not {}", field.name(), types.0, types.1));
        }
    }
    if let Some(extra) = found.fields().iter().find(|field| expected.field_with_name(field.name()).is_err()) {
        return fail(format!("the table has no column {}", extra.name()));
    }
    Ok(())
}

fn same_type(expected: &Field, found: &Field) -> bool {
    let keys = [EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY, KIND_KEY, DTYPE_KEY];
    expected.data_type().equals_datatype(found.data_type())
        && (expected.is_nullable() || !found.is_nullable())
        && keys.iter().all(|key| expected.metadata().get(*key) == found.metadata().get(*key))
}

fn describe(field: &Field) -> String {
    let extension = field.metadata().get(EXTENSION_METADATA_KEY).map(|text| format!(" {text}")).unwrap_or_default();
    let null = if field.is_nullable() { "nullable " } else { "non-null " };
    format!("{null}{}{extension}", field.data_type())
}

/// The schema with `none` as the compression of encoded images, which Lance would compress once more otherwise.
pub(crate) fn with_media_uncompressed(schema: &Schema) -> SchemaRef {
    let field = |field: &Arc<Field>| {
        if !is_encoded_image(field) {
            return field.clone();
        }
        let mut metadata = field.metadata().clone();
        metadata.entry(COMPRESSION_KEY.into()).or_insert_with(|| "none".into());
        Arc::new(field.as_ref().clone().with_metadata(metadata))
    };
    let fields: Vec<_> = schema.fields().iter().map(field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}
