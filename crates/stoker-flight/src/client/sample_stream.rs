//! Batches, from wherever they come.

use stoker_stream::{Batch, BatchStream, Receipt, ReceiptBuilder, StreamStats};

use crate::Result;
use crate::client::decode_stage::DecodeStage;
use crate::client::remote_stream::RemoteStream;

/// A rank's batches in order, from the engine in this process or from servers. Dropping it stops everything.
pub struct SampleStream {
    batches: Batches,
    receipt: ReceiptBuilder,
}

pub(crate) enum Batches {
    Local(Box<BatchStream>),
    Remote(Box<RemoteStream>),
    /// Either of them, with images decoded.
    Decoded(Box<DecodeStage>),
}

impl Batches {
    /// The next batch; `None` after the last one. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Batches::Local(stream) => Ok(stream.next().await?),
            Batches::Remote(stream) => stream.next().await,
            Batches::Decoded(stage) => stage.next().await,
        }
    }

    /// What the stream did so far.
    pub fn stats(&self) -> StreamStats {
        match self {
            Batches::Local(stream) => stream.stats(),
            Batches::Remote(stream) => stream.stats(),
            Batches::Decoded(stage) => stage.stats(),
        }
    }
}

impl SampleStream {
    pub(crate) fn new(batches: Batches, receipt: ReceiptBuilder) -> Self {
        Self { batches, receipt }
    }

    /// The next batch; `None` after the last one. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// What stood in the way of the next batch; the stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        let batch = self.batches.next().await?;
        batch.iter().for_each(|batch| self.receipt.add(batch));
        Ok(batch)
    }

    /// What the stream did so far. Counts of requests and bytes read are known in process only.
    pub fn stats(&self) -> StreamStats {
        self.batches.stats()
    }

    /// Which positions were delivered so far, with a sum over their rows.
    pub fn receipt(&self) -> &Receipt {
        self.receipt.receipt()
    }
}
