//! A planned stream, here or on servers.

use arrow_schema::SchemaRef;
use stoker_stream::{ReadOptions, ReceiptBuilder, StreamPlan};
use stoker_types::{BatchLogEntry, Slice, StreamSpec, StreamState};

use crate::Result;
use crate::client::RemoteLake;
use crate::client::remote_stream::{RemoteStream, Request};
use crate::client::sample_stream::{Batches, SampleStream};

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
    Local(StreamPlan),
    Remote(RemoteLake),
}

impl StreamHandle {
    pub(crate) fn local(plan: StreamPlan) -> Self {
        Self {
            spec: plan.spec().clone(),
            schema: plan.schema(),
            spec_stored: plan.spec_stored(),
            place: Place::Local(plan),
        }
    }

    /// The specification.
    pub fn spec(&self) -> &StreamSpec {
        &self.spec
    }

    /// The columns of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Rows per epoch.
    pub fn num_rows(&self) -> u64 {
        self.spec.num_rows
    }

    /// The state at a position, with the log of global batch sizes.
    pub fn state(&self, epoch: u64, position: u64, log: &[BatchLogEntry]) -> StreamState {
        StreamState::new(&self.spec, epoch, position, log, !self.spec_stored)
    }

    /// Opens a rank's share of an epoch; reading begins at once, on the current Tokio runtime.
    ///
    /// # Errors
    /// An invalid slice. Errors of servers come with the first batch.
    pub async fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<SampleStream> {
        slice.validate()?;
        let batches = match &self.place {
            Place::Local(plan) => Batches::Local(plan.open(slice, options)?),
            Place::Remote(lake) => Batches::Remote(RemoteStream::start(Request {
                lake: lake.clone(),
                spec: self.spec.clone(),
                spec_stored: self.spec_stored,
                slice: *slice,
                memory_budget_bytes: options.memory_budget_bytes,
            })),
        };
        let receipt = ReceiptBuilder::new(self.spec.stream_id(), slice, self.spec.num_rows);
        Ok(SampleStream::new(batches, receipt))
    }
}
