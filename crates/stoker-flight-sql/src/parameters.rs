//! Parameters that clients bind as rows of record batches, and rows that they insert.

use std::io::Cursor;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_flight::FlightData;
use arrow_ipc::MessageHeader;
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, SchemaRef};
use stoker_types::{ArrowParam, ParamValue, catch_panic, check_ipc_stream};

use crate::{Error, Result};

/// 2^53, up to which a double represents every integer.
const EXACT_INTEGER_MAX: i64 = 1 << 53;

/// The marker with which each message of an IPC stream begins, and the length 0, which ends the stream.
const CONTINUATION: [u8; 4] = [0xff; 4];
const END: [u8; 4] = [0; 4];

/// Messages with parameters, as they arrive.
#[derive(Clone, Debug, Default)]
pub struct ParameterMessages {
    /// The messages as an IPC stream.
    stream: Vec<u8>,
}

impl ParameterMessages {
    /// Adds a message. Messages without a header, such as the last one of some clients, are left out.
    ///
    /// # Errors
    /// `ResourceExhausted` if all messages together take more than `bytes_max`.
    pub fn add(&mut self, message: &FlightData, bytes_max: usize) -> Result<()> {
        let bytes = CONTINUATION.len() + END.len() + message.data_header.len() + message.data_body.len();
        if self.stream.len().saturating_add(bytes) > bytes_max {
            return Err(Error::too_large(format!(
                "the parameters take more than {bytes_max} bytes, which is the limit"
            )));
        }
        if let (Ok(length), false) = (u32::try_from(message.data_header.len()), message.data_header.is_empty()) {
            self.stream.extend_from_slice(&CONTINUATION);
            self.stream.extend_from_slice(&length.to_le_bytes());
            self.stream.extend_from_slice(&message.data_header);
            self.stream.extend_from_slice(&message.data_body);
        }
        Ok(())
    }

    /// Whether no message had a header: then there are no parameters.
    pub fn is_empty(&self) -> bool {
        self.stream.is_empty()
    }

    /// Decodes the batches of the messages. It takes no more memory than the messages have bytes.
    ///
    /// # Errors
    /// `InvalidRequest` for messages that are malformed, compressed or dictionary-encoded.
    pub fn batches(self) -> Result<Vec<RecordBatch>> {
        self.decoded("parameters").map(|(_, batches)| batches)
    }

    /// Decodes the columns and the batches. `what` they are is told in errors.
    fn decoded(mut self, what: &str) -> Result<(SchemaRef, Vec<RecordBatch>)> {
        self.stream.extend_from_slice(&CONTINUATION);
        self.stream.extend_from_slice(&END);
        let unreadable = |reason: String| Error::invalid(format!("cannot read the {what}: {reason}"));
        let kinds = check_ipc_stream(&self.stream).map_err(unreadable)?;
        if kinds.contains(&MessageHeader::DictionaryBatch) {
            return Err(unreadable("they are dictionary-encoded; send plain values".into()));
        }
        // Arrow's reader panics on malformed input that it does not check.
        catch_panic(
            || {
                let reader = StreamReader::try_new(Cursor::new(&self.stream), None);
                let decoded = reader.and_then(|reader| {
                    let schema = reader.schema();
                    Ok((schema, reader.collect::<Result<Vec<RecordBatch>, _>>()?))
                });
                decoded.map_err(|source| unreadable(source.to_string()))
            },
            unreadable,
        )
    }
}

/// Messages with rows. Each is decoded by itself, so that no more than one is in memory.
#[derive(Debug, Default)]
pub struct RowMessages {
    /// The message with the columns, and the columns.
    columns: Option<(ParameterMessages, SchemaRef)>,
}

impl RowMessages {
    /// The columns of the rows; `None` before the first message with a header.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.columns.as_ref().map(|(_, schema)| schema)
    }

    /// Decodes a message. The first one with a header has the columns, and each later one a batch. Messages without a
    /// header are left out.
    ///
    /// # Errors
    /// `InvalidRequest` for messages that are malformed, compressed or dictionary-encoded; `ResourceExhausted` for a
    /// message of more than `bytes_max`.
    pub fn add(&mut self, message: &FlightData, bytes_max: usize) -> Result<Vec<RecordBatch>> {
        if message.data_header.is_empty() {
            return Ok(Vec::new());
        }
        match &self.columns {
            None => {
                let mut columns = ParameterMessages::default();
                columns.add(message, bytes_max)?;
                let (schema, batches) = columns.clone().decoded("rows")?;
                self.columns = Some((columns, schema));
                Ok(batches)
            }
            Some((columns, _)) => {
                let mut rows = columns.clone();
                rows.add(message, bytes_max)?;
                rows.decoded("rows").map(|(_, batches)| batches)
            }
        }
    }
}

/// Returns the parameters of each row.
///
/// # Errors
/// `InvalidRequest` for a value that cannot be read.
pub fn rows_of(batch: &RecordBatch) -> Result<Vec<Vec<ParamValue>>> {
    let schema = batch.schema();
    let row = |row: usize| {
        let value = |(column, field): (&ArrayRef, &arrow_schema::FieldRef)| {
            value_of(column, row).map_err(|reason| {
                Error::invalid(format!("parameter {:?} of row {row} cannot be read: {reason}", field.name()))
            })
        };
        batch.columns().iter().zip(schema.fields()).map(value).collect()
    };
    (0..batch.num_rows()).map(row).collect()
}

/// Returns one value of a column, with its type where that is not one of JSON.
fn value_of(column: &ArrayRef, row: usize) -> Result<ParamValue, String> {
    if column.is_null(row) {
        return Ok(ParamValue::Null);
    }
    let one = column.slice(row, 1);
    let as_type = |data_type: &DataType| cast(&one, data_type).map_err(|source| source.to_string());
    Ok(match column.data_type() {
        DataType::Null => ParamValue::Null,
        DataType::Boolean => ParamValue::Bool(one.as_boolean().value(0)),
        integer if integer.is_integer() && *integer != DataType::UInt64 => {
            ParamValue::Int(as_type(&DataType::Int64)?.as_primitive::<Int64Type>().value(0))
        }
        DataType::Float64 => ParamValue::Float(one.as_primitive::<Float64Type>().value(0)),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            ParamValue::Text(as_type(&DataType::Utf8)?.as_string::<i32>().value(0).to_string())
        }
        DataType::Dictionary(_, values) => value_of(&as_type(values)?, 0)?,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)
            if item.data_type().is_numeric() =>
        {
            match numbers(&one)? {
                Some(numbers) => ParamValue::Vector(numbers),
                None => ParamValue::Arrow(typed(one)?),
            }
        }
        _ => ParamValue::Arrow(typed(one)?),
    })
}

fn typed(value: ArrayRef) -> Result<ArrowParam, String> {
    ArrowParam::try_new(value).map_err(|error| error.to_string())
}

/// Returns the numbers of a list if doubles hold all of them exactly, and none is NULL.
fn numbers(list: &ArrayRef) -> Result<Option<Vec<f64>>, String> {
    let values = match list.data_type() {
        DataType::List(_) => list.as_list::<i32>().value(0),
        DataType::LargeList(_) => list.as_list::<i64>().value(0),
        _ => list.as_fixed_size_list().value(0),
    };
    if values.null_count() > 0 {
        return Ok(None);
    }
    match values.data_type() {
        DataType::UInt64
        | DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => return Ok(None),
        integer if integer.is_integer() => {
            let integers = cast(&values, &DataType::Int64).map_err(|source| source.to_string())?;
            let is_exact = |value: &i64| (-EXACT_INTEGER_MAX..=EXACT_INTEGER_MAX).contains(value);
            if !integers.as_primitive::<Int64Type>().values().iter().all(is_exact) {
                return Ok(None);
            }
        }
        _ => {}
    }
    let doubles = cast(&values, &DataType::Float64).map_err(|source| source.to_string())?;
    Ok(Some(doubles.as_primitive::<Float64Type>().values().to_vec()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{
        BooleanArray, Date32Array, DictionaryArray, Float32Array, Float64Array, Int8Array, Int64Array, ListArray,
        NullArray, StringViewArray, UInt64Array,
    };
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::{CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions};

    use super::*;

    fn messages(batch: &RecordBatch, options: &IpcWriteOptions) -> Vec<FlightData> {
        let mut dictionaries = DictionaryTracker::new(false);
        let generator = IpcDataGenerator::default();
        let schema = generator.schema_to_bytes_with_dictionary_tracker(&batch.schema(), &mut dictionaries, options);
        let mut messages = vec![FlightData::from(schema)];
        let (found, encoded) =
            generator.encode(batch, &mut dictionaries, options, &mut CompressionContext::default()).expect("messages");
        messages.extend(found.into_iter().chain([encoded]).map(FlightData::from));
        messages
    }

    fn read(messages: &[FlightData]) -> Result<Vec<RecordBatch>> {
        let mut all = ParameterMessages::default();
        messages.iter().try_for_each(|message| all.add(message, 1 << 20))?;
        all.batches()
    }

    #[test]
    fn messages_are_decoded_only_if_they_are_plain() {
        let names: ArrayRef = Arc::new(StringViewArray::from(vec!["a longer text than twelve", "b"]));
        let batch = RecordBatch::try_from_iter([("1", names), ("2", Arc::new(Int64Array::from(vec![1, 2])) as _)]);
        let batch = batch.expect("a batch");
        let plain = messages(&batch, &IpcWriteOptions::default());
        let mut all = plain.clone();
        all.insert(1, FlightData::default());
        assert_eq!(read(&all).expect("batches"), std::slice::from_ref(&batch));
        assert_eq!(read(&plain[..1]).expect("no batches"), []);
        let reason = |messages: &[FlightData]| read(messages).expect_err("refused").to_string();
        assert!(reason(&plain[1..]).starts_with("cannot read the parameters: "));
        let large = FlightData { data_body: vec![0; 1 << 20].into(), ..FlightData::default() };
        assert!(reason(&[large]).contains("more than 1048576 bytes"));
        let options = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
        assert!(reason(&messages(&batch, &options.expect("a codec"))).contains("it is compressed"));
        let dictionary: DictionaryArray<Int32Type> = vec!["cat"].into_iter().collect();
        let dictionary = RecordBatch::try_from_iter([("1", Arc::new(dictionary) as ArrayRef)]).expect("a batch");
        assert!(reason(&messages(&dictionary, &IpcWriteOptions::default())).contains("dictionary-encoded"));
        // Whatever byte is changed, there is an error or there are values, and no panic.
        for at in 0..plain[1].data_header.len() {
            let mut header = plain[1].data_header.to_vec();
            header[at] ^= 0x41;
            read(&[plain[0].clone(), FlightData { data_header: header.into(), ..plain[1].clone() }]).ok();
        }
    }

    #[test]
    fn rows_are_decoded_message_by_message() {
        let batch = |value| RecordBatch::try_from_iter([("a", Arc::new(Int64Array::from(vec![value])) as ArrayRef)]);
        let (one, two) = (batch(1).expect("a batch"), batch(2).expect("a batch"));
        let (first, second) =
            (messages(&one, &IpcWriteOptions::default()), messages(&two, &IpcWriteOptions::default()));
        let mut rows = RowMessages::default();
        let mut add = |message: &FlightData| rows.add(message, 1 << 20).map_err(|error| error.to_string());
        assert_eq!(add(&FlightData::default()).expect("no header"), []);
        assert_eq!(add(&first[0]).expect("columns"), []);
        assert_eq!(add(&first[1]).expect("rows"), std::slice::from_ref(&one));
        assert_eq!(add(&FlightData::default()).expect("no header"), []);
        assert_eq!(add(&second[1]).expect("rows"), std::slice::from_ref(&two));
        let large = FlightData { data_body: vec![0; 1 << 20].into(), ..first[1].clone() };
        assert!(add(&large).expect_err("too large").contains("more than 1048576 bytes"));
        assert_eq!(rows.schema(), Some(&one.schema()));
        let error = RowMessages::default().add(&first[1], 1 << 20).expect_err("no columns").to_string();
        assert!(error.starts_with("cannot read the rows: "), "{error}");
    }

    #[test]
    fn values_are_what_they_were() {
        let large = 9_007_199_254_740_993;
        let doubles = ListArray::from_iter_primitive::<Float64Type, _, _>([Some([Some(0.5), Some(-2.0)])]);
        let integers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(3), Some(large)])]);
        let gaps = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(3), None])]);
        let names: DictionaryArray<Int32Type> = vec!["cat"].into_iter().collect();
        let arrow = |array: ArrayRef| ParamValue::Arrow(ArrowParam::try_new(array).expect("one value"));
        let cases: Vec<(ArrayRef, ParamValue)> = vec![
            (Arc::new(NullArray::new(1)), ParamValue::Null),
            (Arc::new(Int64Array::from(vec![None])), ParamValue::Null),
            (Arc::new(BooleanArray::from(vec![true])), ParamValue::Bool(true)),
            (Arc::new(Int8Array::from(vec![-3])), ParamValue::Int(-3)),
            (Arc::new(Int64Array::from(vec![i64::MIN])), ParamValue::Int(i64::MIN)),
            (Arc::new(Float64Array::from(vec![f64::NAN])), ParamValue::Float(f64::NAN)),
            (Arc::new(StringViewArray::from(vec!["a longer text than twelve"])), {
                ParamValue::Text("a longer text than twelve".into())
            }),
            (Arc::new(names), ParamValue::Text("cat".into())),
            (Arc::new(doubles), ParamValue::Vector(vec![0.5, -2.0])),
            (Arc::new(integers.clone()), arrow(Arc::new(integers))),
            (Arc::new(gaps.clone()), arrow(Arc::new(gaps))),
            (Arc::new(UInt64Array::from(vec![u64::MAX])), arrow(Arc::new(UInt64Array::from(vec![u64::MAX])))),
            (Arc::new(Float32Array::from(vec![0.1])), arrow(Arc::new(Float32Array::from(vec![0.1])))),
            (Arc::new(Date32Array::from(vec![5])), arrow(Arc::new(Date32Array::from(vec![5])))),
        ];
        for (array, expected) in cases {
            let batch = RecordBatch::try_from_iter_with_nullable([("1", array, true)]).expect("a batch");
            let rows = rows_of(&batch).expect("parameters");
            assert_eq!(rows, vec![vec![expected]]);
        }
    }
}
