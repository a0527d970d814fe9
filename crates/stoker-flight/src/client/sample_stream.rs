//! A rank's batches, from the engine in this process or from servers.

use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_stream::{Batch, BatchStream, ReceiptBuilder};
use stoker_types::{Receipt, ReceiptPart, StreamStats};

use crate::Result;
use crate::client::decode_stage::DecodeStage;
use crate::client::remote_stream::RemoteStream;
use crate::client::wait_clock::WaitClock;

/// A rank's batches in order, from the engine in this process or from servers. Dropping the stream cancels its reads
/// and requests.
pub struct SampleStream {
    batches: Batches,
    receipt: ReceiptBuilder,
}

pub(crate) enum Batches {
    Local(Box<BatchStream>),
    Remote(Box<RemoteStream>),
    /// Batches of one of the other variants, with decoded images.
    Decoded(Box<DecodeStage>),
}

/// The half of a memory budget for encoded batches, which is also the half for decoded ones.
pub(crate) fn halved(memory_budget_bytes: u64) -> u64 {
    (memory_budget_bytes / 2).max(1)
}

impl Batches {
    /// Returns the next batch, or `None` after the last one. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        match self {
            Batches::Local(stream) => Ok(stream.next().await?),
            Batches::Remote(stream) => stream.next().await,
            Batches::Decoded(stage) => stage.next().await,
        }
    }

    /// Tells the stream that a task takes its batches before the consumer asks for them. Returns the clock that this
    /// task must run while the consumer waits. Only remote streams use the clock; other streams return an unused one.
    pub fn read_ahead(&mut self) -> WaitClock {
        match self {
            Batches::Local(_) | Batches::Decoded(_) => WaitClock::default(),
            Batches::Remote(stream) => stream.read_ahead(),
        }
    }

    /// Waits until the stream reserves no more memory for reads.
    pub fn until_read(&self) -> BoxFuture<'static, ()> {
        match self {
            Batches::Local(stream) => stream.until_read().boxed(),
            Batches::Remote(stream) => stream.until_read().boxed(),
            Batches::Decoded(stage) => stage.until_read().boxed(),
        }
    }

    /// Whether the stream reserves no more memory for reads.
    pub fn is_read(&self) -> bool {
        match self {
            Batches::Local(stream) => stream.is_read(),
            Batches::Remote(stream) => stream.is_read(),
            Batches::Decoded(stage) => stage.is_read(),
        }
    }

    /// Ends the prefetching of a stream and gives it another memory budget.
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

    /// Returns the statistics so far.
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

    /// Returns the next batch, or `None` after the last one. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// An error of reading, receiving or decoding the next batch. It ends the stream.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        let Some((batch, part)) = self.take().await? else {
            self.receipt.end();
            return Ok(None);
        };
        self.receipt.push(part);
        Ok(Some(batch))
    }

    /// As [`SampleStream::next`], for consumers that pass batches on and keep the receipt themselves. Each batch comes
    /// with its part of the receipt, which the consumer adds to a receipt of
    /// [`StreamHandle::receipt`](crate::StreamHandle::receipt) after it passed the batch on.
    ///
    /// # Errors
    /// As for [`SampleStream::next`].
    pub async fn take(&mut self) -> Result<Option<(Batch, ReceiptPart)>> {
        let batch = self.batches.next().await?;
        Ok(batch.map(|batch| {
            let part = self.receipt.part(&batch);
            (batch, part)
        }))
    }

    /// Waits until the stream reads its last rows, or has received them from a server. The next epoch may then be
    /// opened.
    pub fn until_read(&self) -> BoxFuture<'static, ()> {
        self.batches.until_read()
    }

    /// Whether the stream reads its last rows, or has received them from a server.
    pub fn is_read(&self) -> bool {
        self.batches.is_read()
    }

    /// Ends the prefetching of a stream that was opened early with little memory, and gives it its full memory budget.
    /// The time to the first batch counts from this call.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        self.batches.begin(memory_budget_bytes);
    }

    /// Returns the statistics so far. The number of storage requests and their bytes are known for streams in this
    /// process only.
    pub fn stats(&self) -> StreamStats {
        self.batches.stats()
    }

    /// Returns the positions that were delivered so far, with a sum over their rows.
    pub fn receipt(&self) -> &Receipt {
        self.receipt.receipt()
    }
}
