//! Rows without the encodings that tables and messages do not have: dictionaries, run ends, views.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};

/// The beginning of the keys of field metadata in which Polars keeps the categories of a column.
const POLARS_KEYS: &str = "_PL_";

/// Returns the columns as they are stored: dictionaries and run ends as their values, views of text and bytes as `LargeUtf8`
/// and `LargeBinary`, in lists and structs, too. Other columns stay as they are.
pub fn unencoded_schema(schema: &Schema) -> SchemaRef {
    let fields: Fields = schema.fields().iter().map(unencoded_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Returns a batch with the columns of [`unencoded_schema`]. Columns without encodings are not copied.
///
/// # Errors
/// Values that cannot be taken out of their encoding.
pub fn unencoded(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let options = CastOptions { safe: false, ..CastOptions::default() };
    let column = |(field, column): (&FieldRef, &ArrayRef)| match column.data_type() == field.data_type() {
        true => Ok(column.clone()),
        false => cast_with_options(column, field.data_type(), &options),
    };
    let columns = schema.fields().iter().zip(batch.columns()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options)
}

fn unencoded_field(field: &FieldRef) -> FieldRef {
    let plain = unencoded_type(field.data_type());
    if plain == *field.data_type() {
        return field.clone();
    }
    let mut metadata = field.metadata().clone();
    metadata.retain(|key, _| !key.starts_with(POLARS_KEYS));
    Arc::new(Field::new(field.name(), plain, field.is_nullable()).with_metadata(metadata))
}

fn unencoded_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, values) => unencoded_type(values),
        DataType::RunEndEncoded(_, values) => unencoded_type(values.data_type()),
        DataType::Utf8View => DataType::LargeUtf8,
        DataType::BinaryView => DataType::LargeBinary,
        DataType::List(item) => DataType::List(unencoded_field(item)),
        DataType::ListView(item) => DataType::List(unencoded_field(item)),
        DataType::LargeList(item) | DataType::LargeListView(item) => DataType::LargeList(unencoded_field(item)),
        DataType::FixedSizeList(item, length) => DataType::FixedSizeList(unencoded_field(item), *length),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(unencoded_field).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{ListBuilder, StringDictionaryBuilder};
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int8Type, Int32Type, UInt32Type};
    use arrow_array::{Array, DictionaryArray, Int32Array, Int64Array, RunArray, StringViewArray, UInt32Array};

    use super::*;

    /// Returns the values of a column after its encoding was taken off.
    fn plain(column: ArrayRef) -> ArrayRef {
        let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).expect("a batch");
        let schema = unencoded_schema(&batch.schema());
        unencoded(&batch, &schema).expect("plain values").column(0).clone()
    }

    #[test]
    fn dictionaries_become_their_values() {
        let words: DictionaryArray<Int8Type> = vec![Some("cat"), None, Some("dog"), Some("cat")].into_iter().collect();
        let values = plain(Arc::new(words));
        assert_eq!(values.data_type(), &DataType::Utf8);
        assert_eq!(values.as_string::<i32>().iter().collect::<Vec<_>>(), [Some("cat"), None, Some("dog"), Some("cat")]);
        // As Polars has categories: their texts are views.
        let (keys, texts) = (UInt32Array::from(vec![Some(1), None, Some(0)]), StringViewArray::from(vec!["a", "b"]));
        let values =
            plain(Arc::new(DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(texts)).expect("categories")));
        assert_eq!(values.as_string::<i64>().iter().collect::<Vec<_>>(), [Some("b"), None, Some("a")]);
        let (ends, numbers) = (Int32Array::from(vec![2, 3]), Int64Array::from(vec![7, 8]));
        let values = plain(Arc::new(RunArray::<Int32Type>::try_new(&ends, &numbers).expect("runs")));
        assert_eq!(values.as_primitive::<arrow_array::types::Int64Type>().values(), &[7, 7, 8]);
        let mut lists = ListBuilder::new(StringDictionaryBuilder::<Int32Type>::new());
        lists.append_value([Some("a"), Some("b"), Some("a")]);
        let values = plain(Arc::new(lists.finish()));
        assert_eq!(
            values.as_list::<i32>().value(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
            ["a", "b", "a"]
        );
    }

    #[test]
    fn other_columns_stay_with_their_metadata() {
        let of_polars = [("_PL_CATEGORICAL2".to_string(), "0".to_string()), ("mine".to_string(), "kept".to_string())];
        let encoded = Field::new("a", DataType::Utf8View, true).with_metadata(of_polars.clone().into());
        let plain = Field::new("b", DataType::Binary, false).with_metadata(of_polars.into());
        let found = unencoded_schema(&Schema::new(vec![encoded, plain.clone()]));
        assert_eq!(found.field(0).data_type(), &DataType::LargeUtf8);
        assert_eq!(found.field(0).metadata().keys().collect::<Vec<_>>(), ["mine"]);
        assert_eq!(found.field(1), &plain);
    }
}
