//! Assembles the batches of one endpoint from its messages.

use std::time::Duration;

use arrow_schema::SchemaRef;
use prost::Message;
use stoker_batch::{Batch, BufferPool, Substitution};
use stoker_types::{Cursor, Digest, Slice, Stalls, to_usize};
use stoker_wire::convert::stall_from_proto;
use stoker_wire::decode::{self, MessageHead, RowAssembler};
use stoker_wire::proto::{self, BatchMetadata};
use stoker_wire::{Error, Result};

use crate::decode_message::decode_message;
use crate::message_reader::MessageReader;
use crate::row_patience::RowPatience;

/// The longest silence of a server before the client closes the connection. A server sends an empty message every five
/// seconds.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Assembles the batches of one endpoint, and checks that they are the requested ones.
pub(crate) struct BatchAssembler {
    messages: MessageReader,
    /// The schema of the plan.
    planned: SchemaRef,
    /// The schema that the server declared before the first rows; `None` before it came.
    schema: Option<SchemaRef>,
    stream_id: Digest,
    /// The endpoint's share of the rank's slice.
    slice: Slice,
    /// The number of rows of the stream.
    num_rows: u64,
    next_step: u64,
    pool: BufferPool,
    patience: RowPatience,
}

impl BatchAssembler {
    /// Creates an assembler for a stream of `num_rows` rows with the schema `planned`.
    pub fn new(
        mut messages: MessageReader,
        planned: SchemaRef,
        stream_id: Digest,
        slice: Slice,
        num_rows: u64,
        pool: BufferPool,
        patience: RowPatience,
    ) -> Self {
        messages.set_silence_max(SILENCE_MAX);
        let next_step = slice.first_step;
        Self { messages, planned, schema: None, stream_id, slice, num_rows, next_step, pool, patience }
    }

    /// Returns the next batch and how the time until its last message was spent, or `None` when the server ended the
    /// stream between two batches.
    ///
    /// # Errors
    /// `Internal` for rows of another stream, step or share, and for messages that cannot be read; `Unavailable` when
    /// the connection breaks, or when the server sends no row for too long.
    pub async fn next(&mut self) -> Result<Option<(Batch, Stalls)>> {
        let clock = self.patience.clock().clone();
        let (begun, mut waited) = (clock.now(), Duration::ZERO);
        let share = self.slice.share(self.next_step, self.num_rows);
        let mut rows: Option<RowAssembler> = None;
        let mut addrs: Vec<Vec<u64>> = Vec::new();
        let mut substituted: Vec<proto::Substitution> = Vec::new();
        let stall = loop {
            let asked = clock.now();
            let Some((head, schema)) = self.message().await? else {
                return if rows.is_none() { Ok(None) } else { Err(ended_early()) };
            };
            waited += clock.since(asked);
            let metadata = BatchMetadata::decode(head.metadata.clone())
                .map_err(|source| Error::internal(format!("a message has metadata that cannot be read: {source}")))?;
            let mut assembler = match rows.take() {
                Some(begun) => begun,
                None => RowAssembler::try_new(schema, to_usize(share.num_rows), &self.pool)?,
            };
            self.check(&metadata, share.num_rows, share.num_valid, assembler.rows() as u64)?;
            let places = assembler.places(&head)?;
            let asked = clock.now();
            let body = self.messages.body(places).await?;
            waited += clock.since(asked);
            let add = move |head: MessageHead| assembler.add(&head, body).map(|added| (assembler, added));
            let (assembler, added) = decode_message(head, add).await.map_err(|error| self.located(error))?;
            rows = Some(assembler);
            match added {
                0 if metadata.end_of_batch => {}
                0 => self.patience.check()?,
                _ => self.patience.row_came(),
            }
            addrs.resize(metadata.sources.len(), Vec::new());
            for (addrs, more) in addrs.iter_mut().zip(&metadata.sources) {
                if more.addrs.len() != added {
                    return Err(Error::internal("a message has different numbers of rows and row addresses"));
                }
                addrs.extend_from_slice(&more.addrs);
            }
            substituted.extend(metadata.substituted);
            if metadata.end_of_batch {
                break metadata.stall;
            }
        };
        let data = rows.ok_or_else(|| Error::internal("a batch without messages"))?.finish()?;
        if addrs.iter().any(|addrs| addrs.len() != data.num_rows()) {
            return Err(Error::internal("a batch has different numbers of rows and row addresses"));
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
        let num_valid = to_usize(share.num_valid);
        let mut spans = stall_from_proto(stall.as_ref());
        spans.network = waited.saturating_sub(spans.storage.saturating_add(spans.decode));
        spans.decode = spans.decode.saturating_add(clock.since(begun).saturating_sub(waited));
        let batch = Batch { step, cursor, data, num_valid, row_addrs: addrs, substituted, buckets: None };
        Ok(Some((batch, spans)))
    }

    /// Returns the head of the next message with rows, and the schema, or `None` after the last message.
    async fn message(&mut self) -> Result<Option<(MessageHead, SchemaRef)>> {
        loop {
            let Some(head) = self.messages.next().await? else { return Ok(None) };
            match &self.schema {
                None => self.schema = decode::planned_schema(&head.header, &self.planned)?,
                // The server sends a message without metadata only to show that it is alive.
                Some(_) if head.metadata.is_empty() => self.patience.check()?,
                Some(schema) => return Ok(Some((head, schema.clone()))),
            }
        }
    }

    /// Adds the step and the stream to an error about the content of a message.
    fn located(&self, error: Error) -> Error {
        match error {
            Error::Internal { reason } => {
                Error::internal(format!("{reason}, in step {} of stream {}", self.next_step, self.stream_id))
            }
            error => error,
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
            stall: None,
        };
        let found = BatchMetadata { sources: Vec::new(), substituted: Vec::new(), stall: None, ..found.clone() };
        match found == expected {
            true => Ok(()),
            false => {
                Err(Error::internal(format!("the server sent other rows than requested: {found:?}, not {expected:?}")))
            }
        }
    }
}

/// The error for a server that ended the stream before all of its batches came.
pub(crate) fn ended_early() -> Error {
    Error::broken("the server ended the stream before its last batch")
}
