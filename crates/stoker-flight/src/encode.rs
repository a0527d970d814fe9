//! Record batches as Flight messages of bounded size.

use arrow_array::{Array, RecordBatch};
use arrow_flight::{FlightData, SchemaAsIpc};
use arrow_ipc::writer::{CompressionContext, DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use arrow_schema::Schema;
use prost::Message;
use stoker_stream::Batch;
use stoker_types::Digest;

use crate::proto::{BatchMetadata, SourceRows};
use crate::{Error, Result};

/// The message that begins an answer: the schema.
pub(crate) fn schema_message(schema: &Schema) -> FlightData {
    SchemaAsIpc::new(schema, &IpcWriteOptions::default()).into()
}

/// The messages of a batch of a stream, each of about `message_bytes`, none empty of rows unless the batch is.
pub(crate) fn batch_messages(batch: &Batch, stream_id: Digest, message_bytes: usize) -> Result<Vec<FlightData>> {
    let rows = batch.data.num_rows();
    let mut messages = Vec::new();
    for (offset, part) in split(&batch.data, message_bytes) {
        let addrs = |addrs: &Vec<u64>| SourceRows { addrs: addrs[offset..offset + part.num_rows()].to_vec() };
        let metadata = BatchMetadata {
            stream_id: stream_id.to_string(),
            epoch: batch.cursor.epoch,
            step: batch.step,
            position: batch.cursor.position,
            num_rows: rows as u64,
            num_valid: batch.num_valid as u64,
            row_offset: offset as u64,
            end_of_batch: offset + part.num_rows() == rows,
            sources: batch.row_addrs.iter().map(addrs).collect(),
        };
        let mut message = encode(&part)?;
        message.app_metadata = metadata.encode_to_vec().into();
        messages.push(message);
    }
    Ok(messages)
}

/// The messages of a record batch of a SQL result.
pub(crate) fn record_batch_messages(batch: &RecordBatch, message_bytes: usize) -> Result<Vec<FlightData>> {
    split(batch, message_bytes).into_iter().map(|(_, part)| encode(&part)).collect()
}

/// Cuts a record batch by rows. Sizes are those of the rows themselves, not of buffers that other rows share.
fn split(batch: &RecordBatch, message_bytes: usize) -> Vec<(usize, RecordBatch)> {
    let rows = batch.num_rows();
    let bytes: usize = batch.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum();
    let parts = bytes.div_ceil(message_bytes.max(1)).clamp(1, rows.max(1));
    let rows_per_part = rows.div_ceil(parts).max(1);
    if rows == 0 {
        return vec![(0, batch.clone())];
    }
    (0..rows).step_by(rows_per_part).map(|at| (at, batch.slice(at, rows_per_part.min(rows - at)))).collect()
}

fn encode(batch: &RecordBatch) -> Result<FlightData> {
    let options = IpcWriteOptions::default();
    let mut tracker = DictionaryTracker::new(false);
    let encoded = IpcDataGenerator::default()
        .encode(batch, &mut tracker, &options, &mut CompressionContext::default())
        .map_err(Error::internal)?;
    let (dictionaries, message) = encoded;
    if !dictionaries.is_empty() {
        return Err(Error::internal("dictionary columns must be unpacked before they are sent"));
    }
    Ok(message.into())
}
