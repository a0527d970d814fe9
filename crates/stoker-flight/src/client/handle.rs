//! A planned stream, here or on servers.

use arrow_schema::SchemaRef;
use stoker_stream::{MemoryBudget, ReadOptions, ReceiptBuilder, StreamPlan};
use stoker_types::{self as types, BatchLogEntry, ErrorKind, Slice, Snapshot, StreamSpec, StreamState};

use crate::client::connection::{ask, plan_remote};
use crate::client::decode_stage::DecodeStage;
use crate::client::image_columns::ImageColumns;
use crate::client::remote_stream::{RemoteStream, Request};
use crate::client::sample_stream::{Batches, SampleStream, halved};
use crate::client::{Connection, DecodeOptions, RemoteLake};
use crate::proto::stream_request::Source;
use crate::proto::{Reweigh, reweigh};
use crate::server::ActionRequest;
use crate::{Error, Result};

/// A planned stream: opens any slice of any epoch. Cheap to clone.
#[derive(Clone)]
pub struct StreamHandle {
    pub(crate) spec: StreamSpec,
    pub(crate) schema: SchemaRef,
    pub(crate) spec_stored: bool,
    pub(crate) place: Place,
}

#[derive(Clone)]
pub(crate) enum Place {
    /// The engine's plan, and the budget of all its streams.
    Local(StreamPlan, MemoryBudget),
    Remote(RemoteLake),
}

impl StreamHandle {
    pub(crate) fn local(plan: StreamPlan, budget: &MemoryBudget) -> Self {
        Self {
            spec: plan.spec().clone(),
            schema: plan.schema(),
            spec_stored: plan.spec_stored(),
            place: Place::Local(plan, budget.clone()),
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
                let stream_id = Some(self.spec.stream_id());
                let request = ActionRequest { stream_id, columns, ..ActionRequest::default() };
                match ask(lake, "nulls", request).await {
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

    /// The same mixture with other weights from a position of an epoch on. Every process that asks for the same gets the same stream.
    ///
    /// # Errors
    /// A stream that is no mixture, weights that do not fit its queries; storage errors.
    pub async fn reweigh(&self, connection: &Connection, epoch: u64, position: u64, weights: &[f64]) -> Result<Self> {
        match (&self.place, connection) {
            (Place::Local(plan, budget), Connection::Local(engine)) => {
                Ok(Self::local(plan.reweigh(engine, epoch, position, weights).await?, budget))
            }
            (Place::Remote(lake), _) => {
                let stream = match self.spec_stored {
                    true => reweigh::Stream::StreamId(self.spec.stream_id().to_string()),
                    false => reweigh::Stream::Spec(self.spec.to_json()),
                };
                let weights = weights.to_vec();
                let reweigh = Reweigh { stream: Some(stream), epoch, position, weights };
                plan_remote(lake, Source::Reweigh(reweigh)).await
            }
            (Place::Local(..), Connection::Remote(_)) => Err(Error::internal("a stream of another connection")),
        }
    }

    /// Opens a rank's share of an epoch; reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// An invalid slice. Errors of servers come with the first batch.
    pub async fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<SampleStream> {
        let batches = self.batches(slice, options)?;
        Ok(SampleStream::new(batches, self.receipt(slice)))
    }

    /// As [`StreamHandle::open`], with columns of images decoded ahead of the consumer, here, on native threads. Which rows come,
    /// and in which order, does not depend on it. Half of the memory budget is for batches whose images are not decoded
    /// yet, the other half for those that are.
    ///
    /// # Errors
    /// As [`StreamHandle::open`] and [`DecodeOptions::schema`]. An image that cannot be decoded ends the stream with
    /// [`Error::BadImage`], whatever [`ReadOptions::bad_rows`] says: only this rank knows of it.
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
        let half = ReadOptions { memory_budget_bytes: halved(options.memory_budget_bytes), ..*options };
        let encoded = self.batches(slice, &half)?;
        let stage = DecodeStage::start(encoded, columns, budget.join_with(&half));
        Ok(SampleStream::new(Batches::Decoded(Box::new(stage)), self.receipt(slice)))
    }

    fn batches(&self, slice: &Slice, options: &ReadOptions) -> Result<Batches> {
        slice.validate()?;
        Ok(match &self.place {
            Place::Local(plan, budget) => Batches::Local(Box::new(plan.open_within(budget, slice, options)?)),
            Place::Remote(lake) => Batches::Remote(Box::new(RemoteStream::start(Request {
                lake: lake.clone(),
                spec: self.spec.clone(),
                spec_stored: self.spec_stored,
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
