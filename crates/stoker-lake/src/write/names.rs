//! Names that the columns of a new table must not have.

use arrow_schema::Schema;
use stoker_types::TableName;

use crate::{Error, Result};

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

/// Checks that no column has a reserved name. A table with such a column could be written but not read.
///
/// # Errors
/// [`Error::InvalidData`] that names the column.
pub(crate) fn check_names(table: &TableName, schema: &Schema) -> Result<()> {
    match schema.fields().iter().find(|field| RESERVED.contains(&field.name().as_str())) {
        None => Ok(()),
        Some(field) => Err(Error::InvalidData {
            table: table.to_string(),
            reason: format!(
                "the name of column {} is reserved for what scans and searches add to rows; rename the column, for \
                 example to {} (reserved: {})",
                field.name(),
                field.name().trim_start_matches('_'),
                RESERVED.join(", ")
            ),
        }),
    }
}
