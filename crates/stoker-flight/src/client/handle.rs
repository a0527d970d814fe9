//! A planned stream, here or on servers.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use stoker_sql::is_same_query;
use stoker_stream::{BadRows, MemoryBudget, ReadOptions, ReceiptBuilder, StreamPlan, WeightHistory, check_batches};
use stoker_types::calls::{Answers, FindNulls};
use stoker_types::{self as types, BatchLogEntry, Context, ErrorKind, Slice, Snapshot, StreamSpec, StreamState};

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

/// A planned stream: opens any slice of any epoch. Cheap to clone.
#[derive(Clone)]
pub struct StreamHandle {
    pub(crate) spec: StreamSpec,
    pub(crate) schema: SchemaRef,
    pub(crate) spec_stored: bool,
    /// Bytes of a row, estimated for columns of variable width.
    pub(crate) row_bytes: u64,
    /// How long reads are tried again where a stream has no option of its own.
    pub(crate) retry_budget: Duration,
    pub(crate) place: Place,
}

#[derive(Clone)]
pub(crate) enum Place {
    /// The engine's plan, and the budget of all its streams.
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
            place: Place::Local(plan, lake.budget().clone()),
        }
    }

    /// The specification.
    pub fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// The tables that supply rows, in the order of a batch's row addresses.
    pub fn tables(&self) -> Vec<Snapshot> {
        self.spec.tables().cloned().collect()
    }

    /// The columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Those of the columns that are null in a row of the stream. Servers of versions that do not know the question name none.
    ///
    /// # Errors
    /// Errors of reading the tables; servers that cannot be reached.
    pub async fn nulls(&self, columns: Vec<String>) -> Result<Vec<String>> {
        match &self.place {
            Place::Local(plan, _) => Ok(plan.nulls(&columns).await?),
            Place::Remote(lake) => {
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

    /// Rows per epoch.
    pub fn num_rows(&self) -> u64 {
        self.spec.num_rows
    }

    /// The state at a cursor and step, with the log of global batch sizes.
    pub fn state(&self, place: types::Place, log: &[BatchLogEntry]) -> StreamState {
        StreamState::new(&self.spec, place, log, !self.spec_stored)
    }

    /// The stream with which a state goes on, if that is not this one but its like: the same with other weights, or with queries whose
    /// texts differ and whose parsed statements do not. A state of another text or weights costs the loading of its stream.
    ///
    /// # Errors
    /// `StateMismatch` with the differences for a state of another stream; storage errors, servers that cannot be reached.
    pub async fn resumed(&self, connection: &Connection, state: &StreamState) -> Result<Option<Self>> {
        if state.stream_id != self.spec.stream_id() && state.may_continue(&self.spec) {
            match connection.load_stream(state).await {
                Ok(found) if found.spec.continues_query(&self.spec, is_same_query) => return Ok(Some(found)),
                Err(error) if error.kind().is_transient() => return Err(error),
                // The differences say more.
                Ok(_) | Err(_) => {}
            }
        }
        Ok(state.check(&self.spec).map(|()| None)?)
    }

    /// The same mixture with other weights from a position of an epoch on. Every process that asks for the same gets the same stream.
    ///
    /// # Errors
    /// A stream that is no mixture, weights that do not fit its queries; storage errors.
    pub async fn reweigh(&self, connection: &Connection, epoch: u64, position: u64, weights: &[f64]) -> Result<Self> {
        match (&self.place, connection) {
            (Place::Local(plan, _), Connection::Local(lake)) => {
                let call = || async { Ok(plan.reweigh(lake, epoch, position, weights, WeightHistory::Linked).await?) };
                Ok(Self::local(lake.patience().ask("changing weights", call).await?, lake))
            }
            (Place::Remote(lake), _) => {
                let stream = match self.spec_stored {
                    true => reweigh::Stream::StreamId(self.spec.stream_id().to_string()),
                    false => reweigh::Stream::Spec(self.spec.to_json()),
                };
                let weights = weights.to_vec();
                let reweigh = Reweigh { stream: Some(stream), epoch, position, weights, may_link: true };
                plan_remote(lake, Source::Reweigh(reweigh)).await
            }
            (Place::Local(..), Connection::Remote(_)) => Err(Error::internal("a stream of another connection")),
        }
    }

    /// Checks that a slice can be opened, without a request: that it is one of this stream, and that this machine could hold its batches.
    ///
    /// # Errors
    /// An invalid slice, an epoch that the stream does not have; `ResourceExhausted` for batches that no memory here holds.
    pub fn check_slice(&self, slice: &Slice) -> Result<()> {
        self.check_rows(slice, self.row_bytes)
    }

    /// As [`StreamHandle::check_slice`], for rows of so many bytes.
    fn check_rows(&self, slice: &Slice, row_bytes: u64) -> Result<()> {
        slice.validate()?;
        self.spec.check_epoch(slice.epoch)?;
        Ok(check_batches(slice, self.spec.num_rows, row_bytes)?)
    }

    /// Opens a rank's share of an epoch; reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// As for [`StreamHandle::check_slice`]. Errors of servers come with the first batch.
    pub async fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<SampleStream> {
        let batches = self.batches(slice, options)?;
        Ok(SampleStream::new(batches, self.receipt(slice)))
    }

    /// As [`StreamHandle::open`], with columns of images decoded ahead of the consumer, here, on native threads. Which rows come,
    /// and in which order, does not depend on it. Half of the memory budget is for batches whose images are not decoded
    /// yet, the other half for those that are.
    ///
    /// # Errors
    /// As [`StreamHandle::open`] and [`DecodeOptions::schema`]. An image that is null or cannot be decoded makes its row a bad one:
    /// with [`BadRows::Error`](stoker_stream::BadRows) the stream ends with [`Error::BadImage`], else the next row of the same window
    /// whose images decode takes its place, the same on all ranks with these transforms; [`Error::NoSubstitute`] where there is none.
    pub async fn open_decoded(
        &self,
        slice: &Slice,
        options: &ReadOptions,
        decode: &DecodeOptions,
    ) -> Result<SampleStream> {
        let budget = match &self.place {
            Place::Local(_, budget) => budget,
            Place::Remote(lake) => lake.budget(),
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
            Place::Local(plan, budget) => Batches::Local(Box::new(plan.open_within(budget, slice, options)?)),
            Place::Remote(lake) => Batches::Remote(Box::new(RemoteStream::start(Request {
                lake: lake.clone(),
                spec: self.spec.clone(),
                spec_stored: self.spec_stored,
                schema: self.schema.clone(),
                slice: *slice,
                options: *options,
            }))),
        })
    }

    /// An empty receipt of a slice.
    pub fn receipt(&self, slice: &Slice) -> ReceiptBuilder {
        ReceiptBuilder::new(self.spec.stream_id(), slice, self.spec.num_rows)
    }
}
