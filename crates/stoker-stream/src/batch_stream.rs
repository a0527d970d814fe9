//! A stream of whole batches.

use arrow_schema::SchemaRef;
use stoker_types::Slice;

use crate::part_plan::PartSize;
use crate::{Batch, MemoryBudget, Part, PartStream, ReadOptions, Result, StreamPlan, StreamStats};

/// A rank's batches in order. Reads ahead within its quota of a memory budget; dropping it stops everything.
pub struct BatchStream {
    /// Each a whole batch.
    parts: PartStream,
}

impl BatchStream {
    pub(crate) fn start(plan: StreamPlan, slice: Slice, options: &ReadOptions, budget: &MemoryBudget) -> Self {
        Self { parts: PartStream::start(plan, slice, options, budget, PartSize::Batch) }
    }

    /// The next batch; `None` after the last one.
    ///
    /// Cancelling the future loses nothing.
    ///
    /// # Errors
    /// What stood in the way of the next batch. The stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        Ok(self.parts.next().await?.map(Part::into_batch))
    }

    /// Steps from the slice's origin to the end of the epoch; equal on all ranks.
    pub fn num_steps(&self) -> u64 {
        self.parts.num_steps()
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.parts.schema()
    }

    /// Waits until the last rows are being read, so that another stream may be opened beside this one.
    pub fn until_read(&self) -> impl Future<Output = ()> + Send + use<> {
        self.parts.until_read()
    }

    /// Whether the last rows are being read, or were.
    pub fn is_read(&self) -> bool {
        self.parts.is_read()
    }

    /// Gives a stream that was opened ahead of its time another memory budget. The time to the first batch counts from now on.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        self.parts.begin(memory_budget_bytes);
    }

    /// What the stream did so far.
    pub fn stats(&self) -> StreamStats {
        self.parts.stats()
    }
}
