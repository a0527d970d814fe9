//! A rank's batches, from the engine in this process or from servers.

use futures::future::BoxFuture;
use stoker_batch::{Batch, ReceiptBuilder};
use stoker_types::{Receipt, ReceiptPart, StreamStats};

use crate::{BatchSource, Result};

/// A rank's batches in order, from the engine in this process or from servers. Dropping the stream cancels its reads
/// and requests.
pub struct SampleStream {
    batches: Box<dyn BatchSource>,
    receipt: ReceiptBuilder,
}

/// The half of a memory budget for encoded batches, which is also the half for decoded ones.
pub(crate) fn halved(memory_budget_bytes: u64) -> u64 {
    (memory_budget_bytes / 2).max(1)
}

impl SampleStream {
    pub(crate) fn new(batches: Box<dyn BatchSource>, receipt: ReceiptBuilder) -> Self {
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
