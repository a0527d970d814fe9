//! The layout of a table's columns in storage.

use arrow_schema::Field;
use stoker_columns::{is_heavy, kind_of};
use stoker_lake::{ColumnSurvey, Result, Table};
use stoker_types::ColumnLayout;

/// Describes the layout of each column of a table, in the order of the schema. Reads the footers of all data files.
///
/// # Errors
/// `DataCorrupt` for unreadable footers; storage errors.
pub async fn describe(table: &Table) -> Result<Vec<ColumnLayout>> {
    let mut columns = Vec::new();
    for field in table.schema().fields() {
        columns.push(layout(field, &table.survey(field.name()).await?));
    }
    Ok(columns)
}

/// The layout of a column, from a survey of the footers.
pub(crate) fn layout(field: &Field, survey: &ColumnSurvey) -> ColumnLayout {
    let obstacle = survey.obstacle();
    ColumnLayout {
        name: field.name().clone(),
        data_type: field.data_type().to_string(),
        kind: kind_of(field).label(field),
        heavy: is_heavy(field),
        bytes_per_row: survey.bytes_per_row,
        num_chunks: survey.num_chunks,
        chunk_bytes_max: survey.chunk_bytes_max,
        bytes: survey.bytes,
        dense: obstacle.is_none(),
        why_not_dense: obstacle.map(|obstacle| obstacle.to_string()),
        compression: survey.encodings.join(", "),
        unchecked_fragments: survey.unchecked.count as u64,
    }
}
