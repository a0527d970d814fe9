//! Makes arrays of the buffers of messages.

use std::collections::{HashMap, VecDeque};

use arrow::ipc;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::{ArrayData, ArrayDataBuilder};
use arrow_schema::{DataType, Field};

use super::compression::BufferCodec;
use super::schema::{IpcField, IpcSchema};

/// The most decompressed bytes of a record batch.
const BATCH_BYTES_MAX: u64 = 2 << 30;

/// The most values of an array.
const VALUES_MAX: usize = i32::MAX as usize;

/// Makes arrays of one message.
pub(super) struct IpcDecoder<'a> {
    body: &'a Buffer,
    nodes: VecDeque<ipc::FieldNode>,
    buffers: VecDeque<ipc::Buffer>,
    /// The number of buffers with long values of each column of views.
    view_buffers: VecDeque<i64>,
    codec: Option<BufferCodec>,
    /// The number of bytes that may still be decompressed.
    left: u64,
    num_rows: usize,
    dictionaries: &'a HashMap<i64, ArrayRef>,
}

impl<'a> IpcDecoder<'a> {
    /// # Errors
    /// The reason, for messages without arrays, or whose buffers overlap.
    pub fn new(
        batch: ipc::RecordBatch<'_>,
        body: &'a Buffer,
        dictionaries: &'a HashMap<i64, ArrayRef>,
    ) -> Result<Self, String> {
        let nodes = batch.nodes().into_iter().flatten().copied().collect();
        let buffers: VecDeque<ipc::Buffer> = batch.buffers().into_iter().flatten().copied().collect();
        let declared = buffers.iter().map(|buffer| u64::try_from(buffer.length()).unwrap_or(u64::MAX));
        if declared.fold(0u64, u64::saturating_add) > body.len() as u64 {
            return Err("the buffers are longer than the body".into());
        }
        let view_buffers = batch.variadicBufferCounts().into_iter().flatten().collect();
        let codec = batch.compression().map(|compression| BufferCodec::of(compression.codec())).transpose()?;
        let num_rows = count(batch.length())?;
        Ok(Self { body, nodes, buffers, view_buffers, codec, left: BATCH_BYTES_MAX, num_rows, dictionaries })
    }

    /// Returns the rows.
    ///
    /// # Errors
    /// The reason, with the column.
    pub fn record_batch(mut self, schema: &IpcSchema) -> Result<RecordBatch, String> {
        let mut columns = Vec::with_capacity(schema.fields.len());
        for field in &schema.fields {
            let array = self.array(field).map_err(|reason| format!("column {}: {reason}", field.field.name()))?;
            columns.push(make_array(array));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.num_rows));
        RecordBatch::try_new_with_options(schema.schema.clone(), columns, &options).map_err(|error| error.to_string())
    }

    /// Returns the values of the dictionary of a column.
    ///
    /// # Errors
    /// The reason.
    pub fn dictionary(mut self, field: &IpcField) -> Result<ArrayRef, String> {
        let values = self.plain_array(field)?;
        Ok(make_array(values))
    }

    fn array(&mut self, field: &IpcField) -> Result<ArrayData, String> {
        let Some(dictionary) = field.dictionary else { return self.plain_array(field) };
        let (len, num_nulls) = self.node()?;
        let builder = self.nulls(field.field.data_type(), len, num_nulls)?;
        let keys = whole_elements(key_type(&field.field), len, self.buffer()?);
        // A dictionary without values is left out.
        let values = self.dictionaries.get(&dictionary).cloned().unwrap_or_else(|| new_empty_array(&field.values));
        build(builder.add_buffer(keys).add_child_data(values.to_data()))
    }

    fn plain_array(&mut self, field: &IpcField) -> Result<ArrayData, String> {
        let (len, num_nulls) = self.node()?;
        if field.values == DataType::Null {
            return build(ArrayData::builder(DataType::Null).len(len));
        }
        let mut builder = self.nulls(&field.values, len, num_nulls)?;
        let num_buffers = match &field.values {
            DataType::FixedSizeList(..) | DataType::Struct(_) => 0,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => 2,
            DataType::Utf8View | DataType::BinaryView => {
                let count = self.view_buffers.pop_front().ok_or("the number of buffers of views is missing")?;
                usize::try_from(count)
                    .ok()
                    .and_then(|count| count.checked_add(1))
                    .ok_or("a number of buffers is wrong")?
            }
            _ => 1,
        };
        for index in 0..num_buffers {
            let buffer = self.buffer()?;
            let is_first = index == 0;
            builder = builder.add_buffer(if is_first { whole_elements(&field.values, len, buffer) } else { buffer });
        }
        for child in &field.children {
            builder = builder.add_child_data(self.array(child)?);
        }
        build(builder)
    }

    /// The number of values and of nulls of the next array.
    fn node(&mut self) -> Result<(usize, usize), String> {
        let node = self.nodes.pop_front().ok_or("the message has too few arrays")?;
        Ok((count(node.length())?, count(node.null_count())?))
    }

    /// Begins an array with the next buffer, which has its validity.
    fn nulls(&mut self, data_type: &DataType, len: usize, num_nulls: usize) -> Result<ArrayDataBuilder, String> {
        let validity = self.buffer()?;
        let builder = ArrayData::builder(data_type.clone()).len(len);
        if num_nulls == 0 {
            return Ok(builder);
        }
        if validity.len() < len.div_ceil(8) {
            return Err("the validity of values is cut off".into());
        }
        Ok(builder.nulls(Some(NullBuffer::new(BooleanBuffer::new(validity, 0, len)))))
    }

    fn buffer(&mut self) -> Result<Buffer, String> {
        let buffer = self.buffers.pop_front().ok_or("the message has too few buffers")?;
        let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok());
        let is_inside =
            |(offset, length): &(usize, usize)| offset.checked_add(*length).is_some_and(|end| end <= self.body.len());
        let (offset, length) = range.filter(is_inside).ok_or("a buffer is outside of the body")?;
        let bytes = self.body.slice_with_length(offset, length);
        match self.codec {
            Some(codec) => codec.decompress(&bytes, &mut self.left),
            None => Ok(bytes),
        }
    }
}

/// The type of the keys of a dictionary.
fn key_type(field: &Field) -> &DataType {
    match field.data_type() {
        DataType::Dictionary(key, _) => key,
        other => other,
    }
}

/// Returns the first buffer of an array without bytes after its elements: a part of an element there would be refused by a
/// panic. Buffers that are too short stay as they are, and are refused when the array is built.
fn whole_elements(data_type: &DataType, len: usize, buffer: Buffer) -> Buffer {
    let bytes = match data_type {
        DataType::Utf8 | DataType::Binary | DataType::List(_) => len.saturating_add(1).saturating_mul(4),
        DataType::LargeUtf8 | DataType::LargeBinary | DataType::LargeList(_) => len.saturating_add(1).saturating_mul(8),
        DataType::Utf8View | DataType::BinaryView => len.saturating_mul(16),
        other => match other.primitive_width() {
            Some(width) => len.saturating_mul(width),
            None => return buffer,
        },
    };
    if bytes < buffer.len() { buffer.slice_with_length(0, bytes) } else { buffer }
}

fn count(count: i64) -> Result<usize, String> {
    let valid = usize::try_from(count).ok().filter(|count| *count <= VALUES_MAX);
    valid.ok_or_else(|| format!("an array of {count} values cannot be read"))
}

fn build(builder: ArrayDataBuilder) -> Result<ArrayData, String> {
    let data = builder.align_buffers(true).build().map_err(|error| error.to_string())?;
    // Fields may not be shorter than their struct; longer ones would be cut by whoever reads them.
    let is_even = |child: &ArrayData| child.len() == data.len();
    match data.data_type() {
        DataType::Struct(_) if !data.child_data().iter().all(is_even) => {
            Err("the fields of a struct differ in length".into())
        }
        _ => Ok(data),
    }
}
