//! A planned stream, in this process or on servers.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use stoker_sql::is_same_query;
use stoker_stream::{MemoryBudget, ReceiptBuilder, StreamPlan, WeightHistory, check_batches};
use stoker_types::calls::{Answers, FindNulls};
use stoker_types::{
    self as types, BadRows, BatchLogEntry, Context, ErrorKind, ReadOptions, Slice, Snapshot, StreamSpec, StreamState,
};

use crate::client::connection::plan_remote;
use crate::client::decode_stage::DecodeStage;
use crate::client::image_columns::ImageColumns;
use crate::client::image_substitutes::ImageSubstitutes;
use crate::client::remote_stream::{RemoteStream, Request};
use crate::client::sample_stream::{Batches, SampleStream, halved};
use crate::client::{Connection, DecodeOptions, LocalLake, RemoteLake};
use crate::proto::stream_request::Source;
use crate::proto::{Reweigh, reweigh};
use crate::{Error, Result};

/// A planned stream, which opens any slice of any epoch. Cheap to clone.
#[derive(Clone)]
pub struct StreamHandle {
    pub(crate) spec: StreamSpec,
    pub(crate) schema: SchemaRef,
    pub(crate) spec_stored: bool,
    /// Bytes of a row; an estimate for columns of variable width.
    pub(crate) row_bytes: u64,
    /// The retry budget of reads, for streams without an option of their own.
    pub(crate) retry_budget: Duration,
    pub(crate) place: PlanOf,
}

#[derive(Clone)]
pub(crate) enum PlanOf {
    /// The engine's plan, and the memory budget that all streams of the connection share.
    Local(StreamPlan, MemoryBudget),
    Remote(RemoteLake),
}

impl StreamHandle {
    pub(crate) fn local(plan: StreamPlan, lake: &LocalLake) -> Self {
        Self {
            spec: plan.spec().clone(),
            schema: plan.schema(),
            spec_stored: plan.spec_stored(),
            row_bytes: plan.row_bytes(),
            retry_budget: lake.retry_budget(),
            place: PlanOf::Local(plan, lake.budget().clone()),
        }
    }

    /// Returns the specification of the stream.
    pub fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// Returns the tables that supply rows, in the order of a batch's row addresses.
    pub fn tables(&self) -> Vec<Snapshot> {
        self.spec.tables().cloned().collect()
    }

    /// Returns the schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Returns those of `columns` that are null in at least one row of the stream. The result is empty for a server
    /// that is too old to know this action.
    ///
    /// # Errors
    /// Errors of reading the tables; servers that cannot be reached.
    pub async fn nulls(&self, columns: Vec<String>) -> Result<Vec<String>> {
        match &self.place {
            PlanOf::Local(plan, _) => Ok(plan.nulls(&columns).await?),
            PlanOf::Remote(lake) => {
                match lake.answer(&Context::local(), FindNulls { stream_id: self.spec.stream_id(), columns }).await {
                    // A server without the action, or one that cannot know a stream whose specification it could not store.
                    Err(error) if matches!(error.kind(), ErrorKind::InvalidRequest | ErrorKind::NotFound) => {
                        Ok(Vec::new())
                    }
                    found => found,
                }
            }
        }
    }

    /// Returns the number of rows per epoch.
    pub fn num_rows(&self) -> u64 {
        self.spec.num_rows
    }

    /// Builds the state at a cursor and step, with the log of global batch sizes.
    pub fn state(&self, place: types::ResumePoint, log: &[BatchLogEntry]) -> StreamState {
        StreamState::new(&self.spec, place, log, !self.spec_stored)
    }

    /// Returns the stream that continues a state, when that stream is not this one. It may differ from this stream in
    /// the weights, or in the text of queries whose parsed statements are equal. Returns `None` for a state of this
    /// stream. A state of another stream costs one call that loads its stream.
    ///
    /// # Errors
    /// `StateMismatch`, which names the differences, for a state that this stream cannot continue; storage errors;
    /// servers that cannot be reached.
    pub async fn resumed(&self, connection: &Connection, state: &StreamState) -> Result<Option<Self>> {
        if state.stream_id != self.spec.stream_id() && state.may_continue(&self.spec) {
            match connection.load_stream(state).await {
                Ok(found) if found.spec.continues_query(&self.spec, is_same_query) => return Ok(Some(found)),
                Err(error) if error.kind().is_transient() => return Err(error),
                // `state.check` names the differences, which say more than this error.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(state.check(&self.spec).map(|()| None)?)
    }

    /// Plans the same mixture with other weights from a position of an epoch on. All processes that pass the same
    /// arguments get the same stream.
    ///
    /// # Errors
    /// A stream that is not a mixture; weights that do not fit its queries; storage errors.
    pub async fn reweigh(&self, connection: &Connection, epoch: u64, position: u64, weights: &[f64]) -> Result<Self> {
        match (&self.place, connection) {
            (PlanOf::Local(plan, _), Connection::Local(lake)) => {
                let call = || async { Ok(plan.reweigh(lake, epoch, position, weights, WeightHistory::Linked).await?) };
                Ok(Self::local(lake.patience().ask("changing weights", call).await?, lake))
            }
            (PlanOf::Remote(lake), _) => {
                let stream = match self.spec_stored {
                    true => reweigh::Stream::StreamId(self.spec.stream_id().to_string()),
                    false => reweigh::Stream::Spec(self.spec.to_json()),
                };
                let weights = weights.to_vec();
                let reweigh = Reweigh { stream: Some(stream), epoch, position, weights, may_link: true };
                plan_remote(lake, Source::Reweigh(reweigh)).await
            }
            (PlanOf::Local(..), Connection::Remote(_)) => Err(Error::internal("a stream of another connection")),
        }
    }

    /// Checks, without a request, that a slice fits this stream and that this machine has the memory for its batches.
    ///
    /// # Errors
    /// An invalid slice; an epoch that the stream does not have; `ResourceExhausted` for batches larger than this
    /// machine's memory.
    pub fn check_slice(&self, slice: &Slice) -> Result<()> {
        self.check_rows(slice, self.row_bytes)
    }

    /// As [`StreamHandle::check_slice`], for rows of `row_bytes` bytes.
    fn check_rows(&self, slice: &Slice, row_bytes: u64) -> Result<()> {
        slice.validate()?;
        self.spec.check_epoch(slice.epoch)?;
        Ok(check_batches(slice, self.spec.num_rows, row_bytes)?)
    }

    /// Opens a rank's share of an epoch. Reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// As for [`StreamHandle::check_slice`]. The first [`SampleStream::next`] returns errors of servers.
    pub async fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<SampleStream> {
        let batches = self.batches(slice, options)?;
        Ok(SampleStream::new(batches, self.receipt(slice)))
    }

    /// As [`StreamHandle::open`], with image columns that native threads of this process decode before the consumer
    /// asks for them. Decoding does not change which rows come or their order, except that a bad row may be
    /// substituted. Half of the memory budget is for encoded batches, the other half for decoded ones.
    ///
    /// # Errors
    /// As for [`StreamHandle::open`] and [`DecodeOptions::schema`]. An image that is null or cannot be decoded makes
    /// its row a bad row. With [`BadRows::Error`](stoker_types::BadRows) the stream then ends with
    /// [`Error::BadImage`]. Otherwise the next row of the same window whose images decode replaces the bad row, and all
    /// ranks with these transforms choose the same row; the stream ends with [`Error::NoSubstitute`] when the window
    /// has no such row.
    pub async fn open_decoded(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: &DecodeOptions,
    ) -> Result<SampleStream> {
        let budget = match &self.place {
            PlanOf::Local(_, budget) => budget,
            PlanOf::Remote(lake) => lake.budget(),
        };
        let columns = ImageColumns::try_new(decode, &self.schema, &self.spec, slice, budget.pool().clone())?;
        self.check_rows(slice, self.row_bytes.saturating_add(columns.tensor_bytes(1)))?;
        let options = &ReadOptions { retry_budget: options.retry_budget.or(Some(self.retry_budget)), ..*options };
        let half = ReadOptions { memory_budget_bytes: halved(options.memory_budget_bytes), ..*options };
        let encoded = self.batches(slice, &half)?;
        let columns = Arc::new(columns);
        let substitutes = match options.bad_rows {
            BadRows::Error => None,
            BadRows::Substitute => Some(ImageSubstitutes::new(self.clone(), options, columns.clone())),
        };
        let stage = DecodeStage::start(encoded, columns, substitutes, budget.join_with(&half));
        Ok(SampleStream::new(Batches::Decoded(Box::new(stage)), self.receipt(slice)))
    }

    fn batches(&self, slice: &Slice, options: &ReadOptions) -> Result<Batches> {
        self.check_slice(slice)?;
        let options = &ReadOptions { retry_budget: options.retry_budget.or(Some(self.retry_budget)), ..*options };
        Ok(match &self.place {
            PlanOf::Local(plan, budget) => Batches::Local(Box::new(plan.open_within(budget, slice, options)?)),
            PlanOf::Remote(lake) => Batches::Remote(Box::new(RemoteStream::start(Request {
                lake: lake.clone(),
                spec: self.spec.clone(),
                spec_stored: self.spec_stored,
                schema: self.schema.clone(),
                slice: *slice,
                options: *options,
            }))),
        })
    }

    /// Returns an empty receipt of a slice.
    pub fn receipt(&self, slice: &Slice) -> ReceiptBuilder {
        ReceiptBuilder::new(self.spec.stream_id(), slice, self.spec.num_rows)
    }
}
