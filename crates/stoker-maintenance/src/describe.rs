//! The layout of a table's columns in storage.

use arrow_schema::Field;
use stoker_lake::{ColumnSurvey, Result, Table, is_blob};
use stoker_types::{
    ColumnLayout, DTYPE_KEY, EXTENSION_NAME_KEY, FIXED_SHAPE_TENSOR, TensorType, is_encoded_image, is_heavy,
};

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
        kind: kind(field),
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

fn kind(field: &Field) -> String {
    if is_encoded_image(field) {
        return "encoded image".into();
    }
    if is_blob(field) {
        return "blob".into();
    }
    if let Some(tensor) = TensorType::of(field) {
        let element =
            field.metadata().get(DTYPE_KEY).cloned().unwrap_or_else(|| tensor.element.to_string().to_lowercase());
        let is_tensor = field.metadata().get(EXTENSION_NAME_KEY).map(String::as_str) == Some(FIXED_SHAPE_TENSOR);
        return format!("{} {element}{:?}", if is_tensor { "tensor" } else { "vector" }, tensor.shape);
    }
    use arrow_schema::DataType;
    match field.data_type() {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => "timestamp",
        DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) => "list",
        DataType::Struct(_) => "struct",
        _ => "scalar",
    }
    .into()
}
