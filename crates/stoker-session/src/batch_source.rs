//! The consumer's end of a stream.

use futures::future::BoxFuture;
use stoker_batch::Batch;
use stoker_types::StreamStats;

use crate::{Result, WaitClock};

/// A rank's batches in order, from the engine in this process, from servers, or with decoded images. Dropping it cancels
/// its reads and requests.
pub trait BatchSource: Send {
    /// Returns the next batch, or `None` after the last one. Cancelling the future loses nothing.
    ///
    /// # Errors
    /// An error of reading, receiving or decoding the next batch. It ends the stream.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>>;

    /// Tells the stream that a task takes its batches before the consumer asks for them. Returns the clock that this
    /// task must run while the consumer waits. Streams that do not measure the consumer's wait return an unused clock.
    fn read_ahead(&mut self) -> WaitClock {
        WaitClock::default()
    }

    /// Waits until the stream reserves no more memory for reads. The future does not keep the stream.
    fn until_read(&self) -> BoxFuture<'static, ()>;

    /// Whether the stream reserves no more memory for reads.
    fn is_read(&self) -> bool;

    /// Ends the prefetching of a stream and gives it another memory budget.
    fn begin(&mut self, memory_budget_bytes: u64);

    /// Returns the statistics so far.
    fn stats(&self) -> StreamStats;
}
