//! Checks that the classes of an append have the same labels as in the table.

use std::collections::BTreeMap;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_schema::ArrowError;
use futures::TryStreamExt;
use stoker_lake::{ScanRequest, Table};

use crate::{Error, Result};

/// Compares the classes, whose labels are their indices, with all rows of a table. Reads the columns `label` and
/// `label_name`.
///
/// # Errors
/// What `refuse` makes of the first class or label that differs, and of the classes of the table in the order of their
/// labels, with commas between them; errors of the lake.
pub(crate) async fn check_labels(
    table: &Table,
    classes: &[String],
    refuse: impl FnOnce(&str, &str) -> Error,
) -> Result<()> {
    let columns = vec!["label".to_string(), "label_name".to_string()];
    if columns.iter().any(|column| table.schema().field_with_name(column).is_err()) {
        return Ok(()); // The writer reports the missing column.
    }
    let mut there: BTreeMap<i64, String> = BTreeMap::new();
    let request = ScanRequest { columns, batch_size: 8192, ..ScanRequest::default() };
    let mut batches = table.scan(&request).await?;
    while let Some(batch) = batches.try_next().await.map_err(|source| scan_error(table, source.into()))? {
        let (labels, names) = (batch.column(0), batch.column(1));
        let (Some(labels), Some(names)) = (labels.as_primitive_opt::<Int64Type>(), names.as_string_opt::<i32>()) else {
            return Ok(()); // The writer reports the wrong type.
        };
        for row in (0..batch.num_rows()).filter(|row| labels.is_valid(*row) && names.is_valid(*row)) {
            there.entry(labels.value(row)).or_insert_with(|| names.value(row).to_string());
        }
    }
    for (label, name) in &there {
        let here = usize::try_from(*label).ok().and_then(|label| classes.get(label));
        let elsewhere = classes.iter().position(|class| class == name);
        if here.is_some_and(|here| here != name) || elsewhere.is_some_and(|index| index as i64 != *label) {
            let found = elsewhere.map_or("absent".to_string(), |label| format!("label {label}"));
            let known: Vec<&str> = there.values().map(String::as_str).collect();
            let difference = format!("class {name} has label {label} in table {} and is {found} here", table.name());
            return Err(refuse(&difference, &known.join(",")));
        }
    }
    Ok(())
}

/// Returns the lake's own error if a scan failed in storage. Other errors are defects.
fn scan_error(table: &Table, source: ArrowError) -> Error {
    let attempted = format!("reading the labels of table {}", table.name());
    match source {
        ArrowError::ExternalError(source) => match source.downcast::<stoker_lake::Error>() {
            Ok(source) => Error::Lake(*source),
            Err(source) => Error::internal(attempted, source),
        },
        source => Error::internal(attempted, source),
    }
}
