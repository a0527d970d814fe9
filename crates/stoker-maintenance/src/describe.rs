//! The layout of a table's columns in storage.

use arrow_schema::Field;
use stoker_columns::{CompressedTensor, LossyColumn, is_heavy, kind_of};
use stoker_lake::{ColumnSurvey, Result, Table};
use stoker_types::{ColumnLayout, IndexInfo};

use crate::decode_rate::decode_rate;

/// Describes the layout of each column of a table, in the order of the schema. Reads the footers of all data files, and the
/// first rows of compressed tensors, which it decodes to measure the rate; takes a request for each index of vectors.
///
/// # Errors
/// `DataCorrupt` for unreadable footers; storage errors.
pub async fn describe(table: &Table) -> Result<Vec<ColumnLayout>> {
    let indexes = table.indexes().await?;
    let mut columns = Vec::new();
    for field in table.schema().fields() {
        let is_over = |index: &&IndexInfo| index.columns.iter().any(|column| column == field.name());
        let named = indexes.iter().filter(is_over).map(|index| format!("{} ({})", index.name, index.kind));
        let layout = layout(table, field, &table.survey(field.name()).await?);
        let decode_bytes_per_sec = decode_rate(table, field).await;
        columns.push(ColumnLayout { indexes: named.collect(), decode_bytes_per_sec, ..layout });
    }
    Ok(columns)
}

/// The layout of a column, from a survey of the footers. The rate of decoding is not measured.
pub(crate) fn layout(table: &Table, field: &Field, survey: &ColumnSurvey) -> ColumnLayout {
    let obstacle = survey.obstacle();
    let compressed = CompressedTensor::try_of(field).ok().flatten();
    let lossy = LossyColumn::of(field);
    let row_bytes = match (&compressed, &lossy) {
        (Some(tensor), _) => Some(tensor.row().num_bytes()),
        (None, Some(lossy)) => lossy.plain_row_bytes(field),
        (None, None) => None,
    };
    let codec = compressed.map(|tensor| match tensor.dictionary {
        Some(_) => format!("{} with a dictionary", tensor.codec),
        None => tensor.codec.to_string(),
    });
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
        codec: codec.or_else(|| lossy.as_ref().map(|lossy| lossy.codec.clone())),
        plain_bytes: row_bytes.map(|bytes| table.num_rows().saturating_mul(bytes as u64)),
        decode_bytes_per_sec: None,
        max_abs_error: lossy.and_then(|lossy| lossy.max_abs_error),
        has_nulls: if field.is_nullable() { survey.has_nulls } else { Some(false) },
        indexes: Vec::new(),
    }
}
