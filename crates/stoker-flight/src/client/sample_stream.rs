//! Batches, from wherever they come.

use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_stream::{Batch, BatchStream, Receipt, ReceiptBuilder, ReceiptPart, StreamStats};

use crate::Result;
use crate::client::decode_stage::DecodeStage;
use crate::client::remote_stream::RemoteStream;
use crate::client::wait_clock::WaitClock;

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

/// The part of a memory budget for encoded batches, or for decoded ones, where images are decoded.
pub(crate) fn halved(memory_budget_bytes: u64) -> u64 {
    (memory_budget_bytes / 2).max(1)
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

    /// The clock of the consumer, for who takes batches ahead of it; of streams in this process nobody asks for the time.
    pub fn read_ahead(&mut self) -> WaitClock {
        match self {
            Batches::Local(_) | Batches::Decoded(_) => WaitClock::default(),
            Batches::Remote(stream) => stream.read_ahead(),
        }
    }

    /// Waits until little is left to be read.
    pub fn until_read(&self) -> BoxFuture<'static, ()> {
        match self {
            Batches::Local(stream) => stream.until_read().boxed(),
            Batches::Remote(stream) => stream.until_read().boxed(),
            Batches::Decoded(stage) => stage.until_read().boxed(),
        }
    }

    /// Whether little is left to be read.
    pub fn is_read(&self) -> bool {
        match self {
            Batches::Local(stream) => stream.is_read(),
            Batches::Remote(stream) => stream.is_read(),
            Batches::Decoded(stage) => stage.is_read(),
        }
    }

    /// Gives a stream that was opened ahead of its time another memory budget.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        match self {
            Batches::Local(stream) => stream.begin(memory_budget_bytes),
            Batches::Remote(stream) => stream.begin(memory_budget_bytes),
            Batches::Decoded(stage) => {
                let half = halved(memory_budget_bytes);
                stage.begin(half, half);
            }
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
        let Some((batch, part)) = self.take().await? else {
            self.receipt.end();
            return Ok(None);
        };
        self.receipt.push(part);
        Ok(Some(batch))
    }

    /// As [`SampleStream::next`], for consumers that hand batches on and keep the receipt themselves: with the batch comes what it
    /// adds to a receipt of [`StreamHandle::receipt`](crate::StreamHandle::receipt) once it is handed on.
    ///
    /// # Errors
    /// As [`SampleStream::next`].
    pub async fn take(&mut self) -> Result<Option<(Batch, ReceiptPart)>> {
        let batch = self.batches.next().await?;
        Ok(batch.map(|batch| {
            let part = self.receipt.part(&batch);
            (batch, part)
        }))
    }

    /// Waits until the last rows are being read, or were received: then the next epoch may be opened.
    pub fn until_read(&self) -> BoxFuture<'static, ()> {
        self.batches.until_read()
    }

    /// Whether the last rows are being read, or were received.
    pub fn is_read(&self) -> bool {
        self.batches.is_read()
    }

    /// Gives a stream that was opened ahead of its time, with little memory, the budget that it should have now that batches are
    /// taken. Its time to the first batch counts from here.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        self.batches.begin(memory_budget_bytes);
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
