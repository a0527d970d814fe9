//! Encodes the metadata (headers) of IPC messages.

use arrow_ipc::{
    BodyCompressionBuilder, BodyCompressionMethod, Buffer, FieldNode, MessageBuilder, MessageHeader, MetadataVersion,
    RecordBatchBuilder,
};
use bytes::Bytes;
use flatbuffers::FlatBufferBuilder;
use stoker_types::Compression;

use crate::buffer_codec::compression_type;

/// The description of a body in the metadata of a record batch message.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchLayout<'a> {
    /// The number of rows.
    pub rows: usize,
    /// The length and the number of nulls of each array, nested ones after their parents.
    pub nodes: &'a [FieldNode],
    /// Where each buffer lies in the body.
    pub buffers: &'a [Buffer],
    /// For each view array, the number of buffers that hold its values.
    pub variadic_counts: &'a [i64],
    /// The size of the body in bytes.
    pub body_bytes: usize,
    /// The codec of the buffers.
    pub compression: Option<Compression>,
}

/// Encodes a `Message` with a `RecordBatch` header:
/// <https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message>.
pub fn record_batch_header(layout: &BatchLayout<'_>) -> Bytes {
    let mut builder = FlatBufferBuilder::new();
    let buffers = builder.create_vector(layout.buffers);
    let nodes = builder.create_vector(layout.nodes);
    let variadic_counts = (!layout.variadic_counts.is_empty()).then(|| builder.create_vector(layout.variadic_counts));
    let compression = layout.compression.map(|compression| {
        let mut body = BodyCompressionBuilder::new(&mut builder);
        body.add_codec(compression_type(compression));
        body.add_method(BodyCompressionMethod::BUFFER);
        body.finish()
    });
    let batch = {
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(layout.rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        compression.into_iter().for_each(|compression| batch.add_compression(compression));
        variadic_counts.into_iter().for_each(|counts| batch.add_variadicBufferCounts(counts));
        batch.finish().as_union_value()
    };
    let message = {
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(layout.body_bytes as i64);
        message.add_header(batch);
        message.finish()
    };
    builder.finish(message, None);
    Bytes::copy_from_slice(builder.finished_data())
}
