//! The metadata of IPC messages.

use arrow_ipc::{Buffer, FieldNode, MessageBuilder, MessageHeader, MetadataVersion, RecordBatchBuilder};
use bytes::Bytes;
use flatbuffers::FlatBufferBuilder;

/// A `Message` with a `RecordBatch` header: <https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message>.
pub(crate) fn record_batch_header(rows: usize, nodes: &[FieldNode], buffers: &[Buffer], body_bytes: usize) -> Bytes {
    let mut builder = FlatBufferBuilder::new();
    let buffers = builder.create_vector(buffers);
    let nodes = builder.create_vector(nodes);
    let batch = {
        let mut batch = RecordBatchBuilder::new(&mut builder);
        batch.add_length(rows as i64);
        batch.add_nodes(nodes);
        batch.add_buffers(buffers);
        batch.finish().as_union_value()
    };
    let message = {
        let mut message = MessageBuilder::new(&mut builder);
        message.add_version(MetadataVersion::V5);
        message.add_header_type(MessageHeader::RecordBatch);
        message.add_bodyLength(body_bytes as i64);
        message.add_header(batch);
        message.finish()
    };
    builder.finish(message, None);
    Bytes::copy_from_slice(builder.finished_data())
}
