//! Makes arrays of the values of text files.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, Float64Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::column::{TextColumn, TextType, TextValues};

/// Returns the values as an array of the column's type.
pub(super) fn finish(column: TextColumn) -> ArrayRef {
    let TextColumn { text_type, valid, values } = column;
    let len = valid.len();
    let nulls = valid.contains(&false).then(|| NullBuffer::from(valid));
    match values {
        TextValues::Boolean(values) => Arc::new(BooleanArray::new(values.into(), nulls)),
        TextValues::Integer(values) => integers(&text_type, values, nulls),
        TextValues::Unsigned(values) => Arc::new(UInt64Array::new(values.into(), nulls)),
        TextValues::Float(values) => Arc::new(Float64Array::new(values.into(), nulls)),
        TextValues::Text { ends, text } => {
            Arc::new(StringArray::new(OffsetBuffer::new(ends.into()), Buffer::from_vec(text), nulls))
        }
        TextValues::List { ends, items } => {
            let DataType::List(item) = text_type.data_type() else {
                return arrow_array::new_null_array(&DataType::Null, len);
            };
            Arc::new(ListArray::new(item, OffsetBuffer::new(ends.into()), finish(*items), nulls))
        }
        TextValues::Struct { fields, .. } => {
            let DataType::Struct(types) = text_type.data_type() else {
                return arrow_array::new_null_array(&DataType::Null, len);
            };
            if types.is_empty() {
                return Arc::new(StructArray::new_empty_fields(len, nulls));
            }
            Arc::new(StructArray::new(types, fields.into_iter().map(finish).collect(), nulls))
        }
    }
}

fn integers(text_type: &TextType, values: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    match text_type {
        TextType::Date => {
            let days: ScalarBuffer<i32> = values.iter().map(|days| i32::try_from(*days).unwrap_or(0)).collect();
            Arc::new(Date32Array::new(days, nulls))
        }
        TextType::Timestamp { is_utc } => {
            let array = TimestampMicrosecondArray::new(values.into(), nulls);
            Arc::new(array.with_timezone_opt(is_utc.then_some("UTC")))
        }
        _ => Arc::new(Int64Array::new(values.into(), nulls)),
    }
}
