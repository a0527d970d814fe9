//! Encodes the bodies of record batch messages.

use arrow_array::{Array, OffsetSizeTrait, RecordBatch};
use arrow_buffer::{Buffer, MutableBuffer};
use arrow_data::ArrayData;
use arrow_ipc::FieldNode;
use arrow_schema::DataType;
use bytes::Bytes;
use stoker_types::Compression;

use crate::buffer_codec::BufferEncoder;
use crate::encode::{BatchLayout, Message, record_batch_header};
use crate::{Error, Result};

/// The alignment of buffers in a body, in bytes, as Arrow recommends it.
const ALIGNMENT: usize = 64;

/// Smaller buffers are copied into a common segment: a segment for each would cost more than the copy.
const SEGMENT_BYTES_MIN: usize = 16 << 10;

/// Returns whether this module can encode columns of a type.
pub fn is_supported(data_type: &DataType) -> bool {
    match data_type {
        DataType::Null | DataType::Boolean | DataType::FixedSizeBinary(_) => true,
        DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8 => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::Map(item, _)
        | DataType::FixedSizeList(item, _) => is_supported(item.data_type()),
        DataType::Struct(fields) => fields.iter().all(|field| is_supported(field.data_type())),
        other => other.primitive_width().is_some(),
    }
}

/// Encodes a record batch, whose types must be supported, as a message. Of sliced arrays only the rows of the slice are
/// sent.
pub fn encode(batch: &RecordBatch, metadata: Bytes, compression: Option<Compression>) -> Result<Message> {
    let mut body = Body { encoder: compression.map(BufferEncoder::try_new).transpose()?, ..Body::default() };
    for column in batch.columns() {
        body.array(&column.to_data())?;
    }
    body.flush();
    let header = record_batch_header(&BatchLayout {
        rows: batch.num_rows(),
        nodes: &body.nodes,
        buffers: &body.buffers,
        body_bytes: body.bytes,
        compression,
        ..BatchLayout::default()
    });
    Ok(Message { header, metadata, body: body.segments })
}

/// A body under construction.
#[derive(Default)]
struct Body {
    nodes: Vec<FieldNode>,
    buffers: Vec<arrow_ipc::Buffer>,
    segments: Vec<Bytes>,
    /// Small buffers and padding that are not in a segment yet.
    small: Vec<u8>,
    bytes: usize,
    /// The encoder of a compressed body.
    encoder: Option<BufferEncoder>,
}

impl Body {
    fn array(&mut self, data: &ArrayData) -> Result<()> {
        let (offset, rows) = (data.offset(), data.len());
        if data.data_type() == &DataType::Null {
            self.nodes.push(FieldNode::new(rows as i64, rows as i64));
            return Ok(());
        }
        self.nodes.push(FieldNode::new(rows as i64, data.null_count() as i64));
        self.push(match data.nulls() {
            Some(nulls) if nulls.null_count() > 0 => nulls.inner().sliced(),
            _ => empty(),
        })?;
        match data.data_type() {
            DataType::Boolean => self.push(data.buffers()[0].bit_slice(offset, rows)),
            DataType::Binary | DataType::Utf8 => self.variable::<i32>(data),
            DataType::LargeBinary | DataType::LargeUtf8 => self.variable::<i64>(data),
            DataType::List(_) | DataType::Map(_, _) => self.list::<i32>(data),
            DataType::LargeList(_) => self.list::<i64>(data),
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).map_err(Error::internal)?;
                self.array(&data.child_data()[0].slice(offset * size, rows * size))
            }
            // Slicing the data of a struct slices its children too.
            DataType::Struct(_) => data.child_data().iter().try_for_each(|child| self.array(child)),
            other => {
                let width = match other {
                    DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
                    other => other.primitive_width(),
                };
                let width = width.ok_or_else(|| Error::internal(format!("{other} has no width")))?;
                self.push(data.buffers()[0].slice_with_length(offset * width, rows * width))
            }
        }
    }

    /// Adds the offsets and values of text or binary values.
    fn variable<O: OffsetSizeTrait>(&mut self, data: &ArrayData) -> Result<()> {
        let (offsets, first, last) = offsets::<O>(data);
        self.push(offsets)?;
        self.push(match last > first {
            true => data.buffers()[1].slice_with_length(first, last - first),
            false => empty(),
        })
    }

    /// Adds the offsets and items of lists.
    fn list<O: OffsetSizeTrait>(&mut self, data: &ArrayData) -> Result<()> {
        let (offsets, first, last) = offsets::<O>(data);
        self.push(offsets)?;
        self.array(&data.child_data()[0].slice(first, last - first))
    }

    fn push(&mut self, buffer: Buffer) -> Result<()> {
        match &mut self.encoder {
            Some(encoder) if !buffer.is_empty() => match encoder.encode(&buffer)? {
                (length, Some(compressed)) => self.put(&length, compressed),
                (length, None) => self.put(&length, Owner(buffer)),
            },
            _ => self.put(&[], Owner(buffer)),
        }
        Ok(())
    }

    /// Adds a buffer that consists of a few bytes (the length prefix of a compressed buffer) and the rest.
    fn put(&mut self, begin: &[u8], rest: impl AsRef<[u8]> + Send + 'static) {
        let (rest_bytes, bytes) = (rest.as_ref().len(), begin.len() + rest.as_ref().len());
        self.buffers.push(arrow_ipc::Buffer::new(self.bytes as i64, bytes as i64));
        let padding = bytes.next_multiple_of(ALIGNMENT) - bytes;
        self.bytes += bytes + padding;
        self.small.extend_from_slice(begin);
        if rest_bytes < SEGMENT_BYTES_MIN {
            self.small.extend_from_slice(rest.as_ref());
        } else {
            self.flush();
            self.segments.push(Bytes::from_owner(rest));
        }
        self.small.resize(self.small.len() + padding, 0);
    }

    fn flush(&mut self) {
        if !self.small.is_empty() {
            self.segments.push(std::mem::take(&mut self.small).into());
        }
    }
}

/// Owns an Arrow buffer while its bytes are being sent.
struct Owner(Buffer);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

fn empty() -> Buffer {
    MutableBuffer::new(0).into()
}

/// Returns offsets that begin at zero, and the begin and the end of the rows' values in the array's value buffer or
/// child.
fn offsets<O: OffsetSizeTrait>(data: &ArrayData) -> (Buffer, usize, usize) {
    if data.is_empty() {
        return (empty(), 0, 0);
    }
    let width = size_of::<O>();
    let offsets = data.buffers()[0].slice_with_length(data.offset() * width, (data.len() + 1) * width);
    let typed = offsets.typed_data::<O>();
    let (first, last) = (typed[0], typed[data.len()]);
    let rebased = match first.as_usize() {
        0 => offsets.clone(),
        _ => Buffer::from_vec(typed.iter().map(|offset| *offset - first).collect::<Vec<O>>()),
    };
    (rebased, first.as_usize(), last.as_usize())
}
