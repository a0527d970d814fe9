//! Record batches as Flight messages of bounded size.
//!
//! ```text
//! RecordBatch ─split─► rows of about `message_bytes` ─Body─► Message { IPC header, metadata, segments }
//! ```
//!
//! Large buffers become segments that point into the arrays: nothing is copied on the way to the socket. Sizes are those of
//! the rows themselves, never of buffers that other rows share.

mod body;
mod header;
mod message;
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
use stoker_stream::{Batch, Stalls};

pub(crate) use header::record_batch_header;
pub(crate) use message::{APP_METADATA, DATA_BODY, DATA_HEADER, Message};

use crate::convert::stall_to_proto;
use crate::proto::{BatchMetadata, SourceRows, Substitution};
use crate::wire::MESSAGE_BYTES_MAX;
use crate::{Error, Result};

/// The message that begins an answer: the schema.
pub(crate) fn schema_message(schema: &Schema) -> Message {
    FlightData::from(SchemaAsIpc::new(schema, &IpcWriteOptions::default())).into()
}

/// Refuses schemas that messages without dictionaries cannot carry.
///
/// # Errors
/// A dictionary-encoded column.
pub(crate) fn check_schema(schema: &Schema) -> Result<()> {
    match schema.flattened_fields().iter().find(|field| matches!(field.data_type(), DataType::Dictionary(_, _))) {
        None => Ok(()),
        Some(field) => Err(Error::invalid(format!(
            "column {:?} is dictionary-encoded, which the service does not send; cast it in the query",
            field.name()
        ))),
    }
}

/// The messages of a batch of a stream: each of about `message_bytes`, one at least, none with rows of another batch. `waited` is
/// what the batch was waited for.
pub(crate) fn batch_messages(batch: &Batch, waited: &Stalls, message_bytes: usize) -> Result<Vec<Message>> {
    let rows = batch.data.num_rows();
    let substitution = |substitution: &stoker_stream::Substitution| Substitution {
        row: substitution.row as u64,
        addrs: substitution.row_addrs.clone(),
        reason: substitution.reason.clone(),
    };
    let substituted: Vec<Substitution> = batch.substituted.iter().map(substitution).collect();
    let message = |part: Range<usize>| {
        let addrs = |addrs: &Vec<u64>| SourceRows { addrs: addrs[part.clone()].to_vec() };
        let metadata = BatchMetadata {
            stream_id: batch.cursor.stream_id.to_string(),
            epoch: batch.cursor.epoch,
            step: batch.step,
            position: batch.cursor.position,
            num_rows: rows as u64,
            num_valid: batch.num_valid as u64,
            row_offset: part.start as u64,
            end_of_batch: part.end == rows,
            sources: batch.row_addrs.iter().map(addrs).collect(),
            substituted: if part.end == rows { substituted.clone() } else { Vec::new() },
            stall: (part.end == rows).then(|| stall_to_proto(waited)),
        };
        encode(&batch.data.slice(part.start, part.len()), metadata.encode_to_vec().into())
    };
    size::split(&batch.data, message_bytes).into_iter().map(message).collect()
}

/// The messages of a record batch of a SQL result.
pub(crate) fn record_batch_messages(batch: &RecordBatch, message_bytes: usize) -> Result<Vec<Message>> {
    let message = |part: Range<usize>| encode(&batch.slice(part.start, part.len()), Bytes::new());
    size::split(batch, message_bytes).into_iter().map(message).collect()
}

/// Bytes of a record batch's rows.
pub(crate) fn record_batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| size::bytes(&column.to_data(), 0, column.len()) as u64).sum()
}

fn encode(batch: &RecordBatch, metadata: Bytes) -> Result<Message> {
    let schema = batch.schema();
    let message = match schema.fields().iter().all(|field| body::is_supported(field.data_type())) {
        true => body::encode(batch, metadata)?,
        false => encode_rare_types(batch, metadata)?,
    };
    match message.wire_bytes() {
        bytes if bytes <= MESSAGE_BYTES_MAX => Ok(message),
        bytes => Err(Error::ResourceExhausted {
            reason: format!(
                "{} rows take {bytes} bytes in one message, the limit is {MESSAGE_BYTES_MAX}: the rows are too large to be sent",
                batch.num_rows()
            ),
        }),
    }
}

/// Views, unions, run-end encoded arrays: through the writer of arrow-ipc, which copies.
fn encode_rare_types(batch: &RecordBatch, metadata: Bytes) -> Result<Message> {
    let columns = batch.columns().iter().map(compact).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let batch = RecordBatch::try_new_with_options(batch.schema(), columns, &options).map_err(Error::internal)?;
    let (dictionaries, encoded) = IpcDataGenerator::default()
        .encode(
            &batch,
            &mut DictionaryTracker::new(false),
            &IpcWriteOptions::default(),
            &mut CompressionContext::default(),
        )
        .map_err(Error::internal)?;
    if !dictionaries.is_empty() {
        return Err(Error::internal("dictionary columns must be refused before they are sent"));
    }
    let message = Message::from(FlightData::from(encoded));
    Ok(Message { metadata, ..message })
}

/// A view array without the values of other rows.
fn compact(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column.clone(),
    }
}
