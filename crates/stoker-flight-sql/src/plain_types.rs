//! Converts results to types that all clients of Flight SQL read: no views, dictionaries and run-end encoded arrays.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::{Error, Result};

/// Returns the schema with plain types.
pub fn plain_schema(schema: &SchemaRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Converts the columns of a batch to those of `schema`, which is its schema with plain types.
///
/// # Errors
/// `Internal` for another schema.
pub fn plain_batch(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let columns = batch.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| cast(column, field.data_type()).map_err(Error::internal));
    let columns = columns.collect::<Result<_>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).map_err(Error::internal)
}

fn plain_field(field: &FieldRef) -> FieldRef {
    match plain(field.data_type()) {
        None => field.clone(),
        Some(data_type) => Arc::new(Field::clone(field).with_data_type(data_type)),
    }
}

/// Returns the plain type for a type; `None` for a type that is plain.
fn plain(data_type: &DataType) -> Option<DataType> {
    let changed = |field: &FieldRef| Some(plain_field(field)).filter(|plain| plain != field);
    match data_type {
        DataType::Utf8View => Some(DataType::Utf8),
        DataType::BinaryView => Some(DataType::Binary),
        DataType::Dictionary(_, values) => Some(plain(values).unwrap_or_else(|| values.as_ref().clone())),
        DataType::RunEndEncoded(_, values) => Some(plain_field(values).data_type().clone()),
        DataType::ListView(item) => Some(DataType::List(plain_field(item))),
        DataType::LargeListView(item) => Some(DataType::LargeList(plain_field(item))),
        DataType::List(item) => Some(DataType::List(changed(item)?)),
        DataType::LargeList(item) => Some(DataType::LargeList(changed(item)?)),
        DataType::FixedSizeList(item, length) => Some(DataType::FixedSizeList(changed(item)?, *length)),
        DataType::Map(entries, sorted) => Some(DataType::Map(changed(entries)?, *sorted)),
        DataType::Struct(fields) => {
            let plain: Vec<FieldRef> = fields.iter().map(plain_field).collect();
            (plain.iter().ne(fields.iter())).then(|| DataType::Struct(plain.into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray, StructArray};
    use arrow_buffer::OffsetBuffer;

    use super::*;

    #[test]
    fn views_and_dictionaries_become_plain_wherever_they_are() {
        let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
        let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None].into_iter().collect();
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let list = |values: &ArrayRef| -> ArrayRef {
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([1, 1]), values.clone(), None))
        };
        let record = |values: &ArrayRef| -> ArrayRef {
            let field = Arc::new(Field::new("x", values.data_type().clone(), true));
            Arc::new(StructArray::from(vec![(field, values.clone())]))
        };
        let columns = |values: &ArrayRef, dictionary: ArrayRef| {
            let columns = [("v", values.clone()), ("d", dictionary), ("i", ids.clone())];
            let nested = [("l", list(values)), ("s", record(values)), ("n", list(&record(values)))];
            RecordBatch::try_from_iter(columns.into_iter().chain(nested)).expect("a batch")
        };
        let encoded = columns(&views, Arc::new(dictionary));
        let expected = columns(&texts, texts.clone());
        let schema = plain_schema(&encoded.schema());
        assert_eq!(schema, expected.schema());
        assert_eq!(plain_batch(&encoded, &schema).expect("plain columns"), expected);
        assert_eq!(plain_schema(&schema), schema);
    }
}
