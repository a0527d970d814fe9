//! Encodes record batches as Flight messages of bounded size.
//!
//! ```text
//! RecordBatch ─split─► rows of about `message_bytes` ─Body─► Message { IPC header, metadata, segments }
//! ```
//!
//! Buffers of 16 KiB and more become segments that point into the arrays and are not copied before they are written to
//! the socket. Smaller buffers are copied into common segments, and types that Stoker rarely sends are encoded by
//! arrow-ipc, which copies. Message sizes count the bytes of the rows themselves, not those of buffers that they share
//! with other rows.
//!
//! Messages may be compressed, buffer by buffer. The split of rows into messages does not depend on compression.

mod body;
mod header;
mod message;
mod segments;
mod size;

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::{CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::{DataType, Schema};
use bytes::Bytes;
use prost::Message as _;
use stoker_batch::{Part, record_batch_bytes};
use stoker_types::{Compression, Stalls, to_usize};

pub use header::{BatchLayout, record_batch_header};
pub use message::{APP_METADATA, DATA_BODY, DATA_HEADER, Message};
pub use segments::Segments;
pub use size::split as split_rows;

use crate::buffer_codec::compression_type;
use crate::convert::stall_to_proto;
use crate::proto::{BatchMetadata, SourceRows, Substitution};
use crate::{Error, Result};

/// Options for encoding rows as messages.
#[derive(Clone, Copy, Debug)]
pub struct MessageOptions {
    /// The target size of a message in bytes, before compression.
    pub message_bytes: usize,
    /// The maximum size of a message in bytes, before compression: that of a row at least.
    pub message_bytes_max: usize,
    /// The codec that compresses the buffers; `None` for no compression.
    pub compression: Option<Compression>,
}

/// Encodes the schema message, with which a response begins.
pub fn schema_message(schema: &Schema) -> Message {
    FlightData::from(SchemaAsIpc::new(schema, &IpcWriteOptions::default())).into()
}

/// Refuses a schema with dictionaries, because Stoker's messages do not carry them.
///
/// # Errors
/// A dictionary-encoded column.
pub fn check_schema(schema: &Schema) -> Result<()> {
    match schema.flattened_fields().iter().find(|field| matches!(field.data_type(), DataType::Dictionary(_, _))) {
        None => Ok(()),
        Some(field) => Err(Error::invalid(format!(
            "column {:?} is dictionary-encoded, which the service does not send; cast it in the query",
            field.name()
        ))),
    }
}

/// Encodes a part of a stream's batch as one or more messages. `waited` is the time for which the server waited for the
/// batch; the last message of the batch carries it.
pub fn part_messages(part: &Part, waited: &Stalls, options: &MessageOptions) -> Result<Vec<Message>> {
    let substitution = |found: &stoker_batch::Substitution| Substitution {
        row: found.row as u64,
        addrs: found.row_addrs.clone(),
        reason: found.reason.clone(),
    };
    let message = |range: Range<usize>| {
        let rows = part.first_row + range.start..part.first_row + range.end;
        let addrs = |addrs: &Vec<u64>| SourceRows { addrs: addrs[range.clone()].to_vec() };
        let substituted = part.substituted.iter().filter(|found| rows.contains(&found.row));
        let metadata = BatchMetadata {
            stream_id: part.cursor.stream_id.to_string(),
            epoch: part.cursor.epoch,
            step: part.step,
            position: part.cursor.position,
            num_rows: part.num_rows as u64,
            num_valid: part.num_valid as u64,
            row_offset: rows.start as u64,
            end_of_batch: rows.end == part.num_rows,
            sources: part.row_addrs.iter().map(addrs).collect(),
            substituted: substituted.map(substitution).collect(),
            stall: (rows.end == part.num_rows).then(|| stall_to_proto(waited)),
        };
        let rows = part.data.slice(range.start, range.len());
        encode(&rows, metadata.encode_to_vec().into(), options)
    };
    size::split(&part.data, options.message_bytes).into_iter().map(message).collect()
}

/// Encodes a record batch of a SQL result as messages.
pub fn record_batch_messages(batch: &RecordBatch, options: &MessageOptions) -> Result<Vec<Message>> {
    let message = |part: Range<usize>| encode(&batch.slice(part.start, part.len()), Bytes::new(), options);
    size::split(batch, options.message_bytes).into_iter().map(message).collect()
}

fn encode(batch: &RecordBatch, metadata: Bytes, options: &MessageOptions) -> Result<Message> {
    let MessageOptions { message_bytes_max, compression, .. } = *options;
    let schema = batch.schema();
    let message = match schema.fields().iter().all(|field| body::is_supported(field.data_type())) {
        true => body::encode(batch, metadata, compression)?,
        false => encode_rare_types(batch, metadata, compression)?,
    };
    // The limit holds for the uncompressed size too, because the receiver needs memory for all of it.
    match message.wire_bytes().max(to_usize(record_batch_bytes(batch))) {
        bytes if bytes <= message_bytes_max => Ok(message),
        bytes => Err(Error::ResourceExhausted { reason: too_large(batch, bytes, message_bytes_max) }),
    }
}

/// Describes rows that are too large for a message.
fn too_large(batch: &RecordBatch, bytes: usize, limit: usize) -> String {
    let size = |(field, column): (&arrow_schema::FieldRef, &ArrayRef)| {
        (column.to_data().get_slice_memory_size().unwrap_or_default(), field.name().clone())
    };
    let schema = batch.schema();
    let largest = schema.fields().iter().zip(batch.columns()).map(size).max();
    let largest = largest.map(|(bytes, name)| format!(", of which column {name:?} has {bytes}")).unwrap_or_default();
    let num_rows = batch.num_rows();
    format!("{num_rows} row(s) take {bytes} bytes in one message{largest}, and the limit is {limit}: select less of it")
}

/// Encodes views, unions and run-end encoded arrays with the writer of arrow-ipc, which copies.
fn encode_rare_types(batch: &RecordBatch, metadata: Bytes, compression: Option<Compression>) -> Result<Message> {
    let columns = batch.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options).map_err(Error::internal)?;
    let options = IpcWriteOptions::default().try_with_compression(compression.map(compression_type));
    let (dictionaries, encoded) = IpcDataGenerator::default()
        .encode(
            &batch,
            &mut DictionaryTracker::new(false),
            &options.map_err(Error::internal)?,
            &mut CompressionContext::default(),
        )
        .map_err(Error::internal)?;
    if !dictionaries.is_empty() {
        return Err(Error::internal("dictionary columns must be refused before they are sent"));
    }
    let message = Message::from(FlightData::from(encoded));
    Ok(Message { metadata, ..message })
}

/// Returns a view array without the values of other rows, and any other array as it is.
fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    }
}
