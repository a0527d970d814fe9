//! Maps the buffers of a message to columns.

use arrow_schema::{DataType, Schema};

/// Returns the name of the column that a buffer of a message belongs to; `None` if the number of buffers of a type
/// before it is not known.
pub fn column_of(schema: &Schema, buffer: usize) -> Option<&str> {
    let mut end = 0;
    for field in schema.fields() {
        end += buffer_counts(field.data_type())?.1;
        if buffer < end {
            return Some(field.name());
        }
    }
    None
}

/// Returns the number of nodes and of buffers of a type; `None` if it is not known:
/// <https://arrow.apache.org/docs/format/Columnar.html#buffer-listing-for-each-layout>.
pub fn buffer_counts(data_type: &DataType) -> Option<(usize, usize)> {
    match data_type {
        DataType::Null => Some((1, 0)),
        DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => Some((1, 3)),
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            buffer_counts(item.data_type()).map(|(nodes, buffers)| (nodes + 1, buffers + 2))
        }
        DataType::FixedSizeList(item, _) => {
            buffer_counts(item.data_type()).map(|(nodes, buffers)| (nodes + 1, buffers + 1))
        }
        DataType::Struct(fields) => fields.iter().try_fold((1, 1), |(nodes, buffers), field| {
            buffer_counts(field.data_type())
                .map(|(more_nodes, more_buffers)| (nodes + more_nodes, buffers + more_buffers))
        }),
        DataType::Boolean | DataType::FixedSizeBinary(_) => Some((1, 2)),
        other => other.primitive_width().map(|_| (1, 2)),
    }
}
