//! From messages to batches.

use std::collections::VecDeque;

use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use arrow_flight::FlightData;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave;
use futures::StreamExt;
use futures::stream::BoxStream;
use prost::Message;
use stoker_stream::Batch;
use stoker_types::{Cursor, Digest};

use crate::proto::BatchMetadata;
use crate::{Error, Result, decode};

/// Assembles the batches of one endpoint from its messages.
pub(crate) struct BatchAssembler {
    messages: BoxStream<'static, Result<FlightData>>,
    schema: Option<SchemaRef>,
    stream_id: Digest,
}

impl BatchAssembler {
    pub fn new(messages: BoxStream<'static, Result<FlightData>>, stream_id: Digest) -> Self {
        Self { messages, schema: None, stream_id }
    }

    /// The next batch; `None` when the server ended the stream.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        let mut parts: VecDeque<RecordBatch> = VecDeque::new();
        let mut rows = 0u64;
        let mut addrs: Vec<Vec<u64>> = Vec::new();
        loop {
            let Some(message) = self.messages.next().await else {
                return match parts.is_empty() {
                    true => Ok(None),
                    false => Err(broken("the stream ended in the middle of a batch")),
                };
            };
            let message = message?;
            let Some(schema) = self.schema.clone() else {
                self.schema = decode::schema(&message)?;
                continue;
            };
            if message.app_metadata.is_empty() {
                continue;
            }
            let metadata = BatchMetadata::decode(message.app_metadata.clone())
                .map_err(|source| Error::internal(format!("a message has unreadable metadata: {source}")))?;
            if metadata.stream_id != self.stream_id.to_string() || metadata.row_offset != rows {
                return Err(Error::internal("the server sent rows of another stream, or out of order"));
            }
            let part = decode::record_batch(&message, &schema)?;
            rows += part.num_rows() as u64;
            parts.push_back(part);
            addrs.resize(metadata.sources.len(), Vec::new());
            for (addrs, more) in addrs.iter_mut().zip(&metadata.sources) {
                addrs.extend_from_slice(&more.addrs);
            }
            if !metadata.end_of_batch {
                continue;
            }
            if rows != metadata.num_rows || addrs.iter().any(|addrs| addrs.len() as u64 != rows) {
                return Err(Error::internal(format!(
                    "batch {} has {rows} of {} rows",
                    metadata.step, metadata.num_rows
                )));
            }
            let data = match parts.len() {
                1 => parts.swap_remove_back(0).ok_or_else(|| Error::internal("no rows"))?,
                _ => concat_batches(&schema, parts.make_contiguous().iter()).map_err(Error::internal)?,
            };
            let cursor = Cursor { stream_id: self.stream_id, epoch: metadata.epoch, position: metadata.position };
            let num_valid = metadata.num_valid as usize;
            return Ok(Some(Batch { step: metadata.step, cursor, data, num_valid, row_addrs: addrs }));
        }
    }
}

/// The batch whose row i is row i / E of part (first + i) mod E.
pub(crate) fn interleave_parts(parts: Vec<Batch>, first_part: u64) -> Result<Batch> {
    let Some(first) = parts.first().cloned() else { return Err(Error::internal("no endpoints")) };
    if parts.len() == 1 {
        return Ok(first);
    }
    if parts.iter().any(|part| part.step != first.step || part.cursor != first.cursor) {
        return Err(Error::internal("the endpoints are at different steps"));
    }
    let rows: usize = parts.iter().map(|part| part.data.num_rows()).sum();
    let places: Vec<(usize, usize)> =
        (0..rows).map(|row| ((row + first_part as usize) % parts.len(), row / parts.len())).collect();
    if places.iter().any(|(part, row)| *row >= parts[*part].data.num_rows()) {
        return Err(Error::internal("the endpoints' shares of a batch do not fit together"));
    }
    let mut columns = Vec::new();
    for column in 0..first.data.num_columns() {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.data.column(column).as_ref()).collect();
        columns.push(interleave(&arrays, &places).map_err(Error::internal)?);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let data = RecordBatch::try_new_with_options(first.data.schema(), columns, &options).map_err(Error::internal)?;
    let pick = |source: usize| places.iter().map(|(part, row)| parts[*part].row_addrs[source][*row]).collect();
    let row_addrs = (0..first.row_addrs.len()).map(pick).collect();
    let num_valid = parts.iter().map(|part| part.num_valid).sum();
    Ok(Batch { step: first.step, cursor: first.cursor, data, num_valid, row_addrs })
}

/// A stream that broke off: another connection may go on.
pub(crate) fn broken(reason: &str) -> Error {
    Error::Remote { kind: stoker_types::ErrorKind::Unavailable, message: reason.to_string() }
}
