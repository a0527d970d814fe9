//! From the messages of one endpoint to its batches.

use std::time::Duration;

use arrow_schema::SchemaRef;
use prost::Message;
use stoker_stream::{Batch, Substitution};
use stoker_types::{Cursor, Digest, Slice};

use crate::decode::{self, MessageReader, ReceivedMessage, RowAssembler};
use crate::proto::{self, BatchMetadata};
use crate::{Error, Result};

/// A server that sends nothing for so long is gone: it sends empty messages every five seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Assembles the batches of one endpoint, and checks that they are the ones that were asked for.
pub(crate) struct BatchAssembler {
    messages: MessageReader,
    schema: Option<SchemaRef>,
    stream_id: Digest,
    /// The endpoint's share.
    slice: Slice,
    /// Rows of the stream.
    num_rows: u64,
    next_step: u64,
}

impl BatchAssembler {
    pub fn new(messages: MessageReader, stream_id: Digest, slice: Slice, num_rows: u64) -> Self {
        Self { messages, schema: None, stream_id, slice, num_rows, next_step: slice.first_step }
    }

    /// The next batch.
    ///
    /// # Errors
    /// `Internal` for rows of another stream, step or share, and for messages that cannot be read; `Unavailable` when the
    /// server goes away.
    pub async fn next(&mut self) -> Result<Batch> {
        let share = self.slice.share(self.next_step, self.num_rows);
        let mut rows: Option<RowAssembler> = None;
        let mut addrs: Vec<Vec<u64>> = Vec::new();
        let substituted = loop {
            let (message, schema) = self.message().await?;
            let metadata = BatchMetadata::decode(message.metadata.clone())
                .map_err(|source| Error::internal(format!("a message has metadata that cannot be read: {source}")))?;
            let rows = rows.get_or_insert_with(|| RowAssembler::new(schema, share.num_rows as usize));
            self.check(&metadata, share.num_rows, share.num_valid, rows.rows() as u64)?;
            let added = rows.add(message)?;
            addrs.resize(metadata.sources.len(), Vec::new());
            for (addrs, more) in addrs.iter_mut().zip(&metadata.sources) {
                if more.addrs.len() != added {
                    return Err(Error::internal("a message has other numbers of rows and of row addresses"));
                }
                addrs.extend_from_slice(&more.addrs);
            }
            if metadata.end_of_batch {
                break metadata.substituted;
            }
        };
        let data = rows.ok_or_else(|| Error::internal("a batch without messages"))?.finish()?;
        if addrs.iter().any(|addrs| addrs.len() != data.num_rows()) {
            return Err(Error::internal("a batch has other numbers of rows and of row addresses"));
        }
        let substitution = |found: proto::Substitution| match usize::try_from(found.row) {
            Ok(row) if row < data.num_rows() && found.addrs.len() == addrs.len() => {
                Ok(Substitution { row, row_addrs: found.addrs, reason: found.reason })
            }
            _ => Err(Error::internal("a batch names a substitution for a row that it does not have")),
        };
        let substituted = substituted.into_iter().map(substitution).collect::<Result<_>>()?;
        let position = self.slice.position_after(self.next_step, self.num_rows);
        let cursor = Cursor { stream_id: self.stream_id, epoch: self.slice.epoch, position };
        let step = self.next_step;
        self.next_step += 1;
        Ok(Batch { step, cursor, data, num_valid: share.num_valid as usize, row_addrs: addrs, substituted })
    }

    /// The next message with rows, and the schema of all.
    async fn message(&mut self) -> Result<(ReceivedMessage, SchemaRef)> {
        loop {
            let message = tokio::time::timeout(SILENCE_MAX, self.messages.next()).await;
            let message = message.map_err(|_| Error::broken("the server gives no sign of life"))??;
            let message = message.ok_or_else(|| Error::broken("the server ended the stream early"))?;
            match &self.schema {
                None => self.schema = decode::schema(&message.header)?,
                // A message without metadata shows that the server lives.
                Some(_) if message.metadata.is_empty() => {}
                Some(schema) => return Ok((message, schema.clone())),
            }
        }
    }

    fn check(&self, found: &BatchMetadata, num_rows: u64, num_valid: u64, row_offset: u64) -> Result<()> {
        let expected = BatchMetadata {
            stream_id: self.stream_id.to_string(),
            epoch: self.slice.epoch,
            step: self.next_step,
            position: self.slice.position_after(self.next_step, self.num_rows),
            num_rows,
            num_valid,
            row_offset,
            end_of_batch: found.end_of_batch,
            sources: Vec::new(),
            substituted: Vec::new(),
        };
        let found = BatchMetadata { sources: Vec::new(), substituted: Vec::new(), ..found.clone() };
        match found == expected {
            true => Ok(()),
            false => {
                Err(Error::internal(format!("the server sent other rows than asked for: {found:?}, not {expected:?}")))
            }
        }
    }
}
