//! Query parameters of the types that JSON cannot express.

use std::fmt;
use std::panic::catch_unwind;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, NullArray, RecordBatch, StringArray,
    UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::{Error, Result, check_ipc_stream};

/// A query parameter that is one Arrow value: a date, a timestamp, a decimal, a binary value, a list and so on.
///
/// Its stored form is an Arrow IPC stream with one column and one row, in base64. The bytes of the stream are kept as
/// they were received, so that the digest of a specification stays the same when another program writes the
/// specification again.
#[derive(Clone)]
pub struct ArrowParam {
    value: ArrayRef,
    ipc: Arc<[u8]>,
}

impl PartialEq for ArrowParam {
    fn eq(&self, other: &Self) -> bool {
        self.ipc == other.ipc
    }
}

impl fmt::Debug for ArrowParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = format!("{:?}", self.value);
        write!(f, "{} {}", self.value.data_type(), value.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl ArrowParam {
    /// Makes a parameter of an array that has one element.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] for an array that does not have exactly one element, and for types that Arrow's IPC
    /// format does not support.
    pub fn try_new(value: ArrayRef) -> Result<Self> {
        let refuse = |reason: String| Error::InvalidValue { what: "parameter", reason };
        if value.len() != 1 {
            return Err(refuse(format!("its array has {} values, expected one", value.len())));
        }
        let ipc = encode(&value).map_err(|source| refuse(format!("{}: {source}", value.data_type())))?;
        Ok(Self { value, ipc: ipc.into() })
    }

    /// Returns the value as an array of one element.
    pub fn value(&self) -> &ArrayRef {
        &self.value
    }

    /// Returns whether the value is a list of variable length or of fixed size.
    pub fn is_list(&self) -> bool {
        matches!(
            self.value.data_type(),
            DataType::List(_) | DataType::LargeList(_) | DataType::FixedSizeList(..) | DataType::ListView(_)
        )
    }

    pub(crate) fn to_base64(&self) -> String {
        STANDARD.encode(&self.ipc)
    }

    /// Reads the stored form. The error is the reason why `text` is not one.
    pub(crate) fn from_base64(text: &str) -> Result<Self, String> {
        let ipc = STANDARD.decode(text).map_err(|source| format!("an Arrow parameter is not base64: {source}"))?;
        let value = decode(&ipc).map_err(|reason| format!("an Arrow parameter cannot be read: {reason}"))?;
        Ok(Self { value, ipc: ipc.into() })
    }

    pub(crate) fn from_u64(value: u64) -> Result<Self, String> {
        Self::try_new(Arc::new(UInt64Array::from(vec![value]))).map_err(|source| source.to_string())
    }

    /// Makes a list of texts, of booleans, of integers or of floating-point numbers, any of which may be null.
    pub(crate) fn from_json_list(items: &[Value]) -> Result<Self, String> {
        let is = |fits: fn(&Value) -> bool| items.iter().all(|item| item.is_null() || fits(item));
        let values: ArrayRef = if is(Value::is_null) {
            Arc::new(NullArray::new(items.len()))
        } else if is(Value::is_string) {
            Arc::new(items.iter().map(Value::as_str).collect::<StringArray>())
        } else if is(Value::is_boolean) {
            Arc::new(items.iter().map(Value::as_bool).collect::<BooleanArray>())
        } else if is(Value::is_i64) {
            Arc::new(items.iter().map(Value::as_i64).collect::<Int64Array>())
        } else if is(Value::is_number) {
            Arc::new(items.iter().map(Value::as_f64).collect::<Float64Array>())
        } else {
            return Err(
                "a list parameter mixes types; its values are all numbers, all texts or all booleans".to_string()
            );
        };
        Self::try_new(Arc::new(one_list(values))).map_err(|source| source.to_string())
    }
}

/// Returns an array of one element, which is the list of these values.
fn one_list(values: ArrayRef) -> ListArray {
    let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    ListArray::new(item, OffsetBuffer::from_lengths([values.len()]), values, None)
}

fn encode(value: &ArrayRef) -> Result<Vec<u8>, arrow_schema::ArrowError> {
    let schema = Arc::new(Schema::new(vec![Field::new("value", value.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(schema.clone(), vec![value.clone()])?;
    let mut writer = StreamWriter::try_new(Vec::new(), &schema)?;
    writer.write(&batch)?;
    writer.into_inner()
}

/// Returns the only value of an IPC stream. The error is the reason why the stream is not one value. Panics of Arrow's
/// reader are caught.
fn decode(ipc: &[u8]) -> Result<ArrayRef, String> {
    let is_plain = |kind: &MessageHeader| matches!(*kind, MessageHeader::Schema | MessageHeader::RecordBatch);
    if !check_ipc_stream(ipc)?.iter().all(is_plain) {
        return Err("it has messages other than a schema and values".to_string());
    }
    let read = catch_unwind(|| {
        let mut reader = StreamReader::try_new(ipc, None)?;
        reader.next().transpose()
    });
    let batch =
        read.map_err(|_| "the Arrow reader panicked on it".to_string())?.map_err(|source| source.to_string())?;
    match batch {
        Some(batch) if batch.num_rows() == 1 && batch.num_columns() == 1 => Ok(batch.column(0).clone()),
        _ => Err("it must have exactly one row and one column".to_string()),
    }
}
