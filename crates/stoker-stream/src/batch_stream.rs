//! The stream of a rank's batches.

use arrow_schema::SchemaRef;
use stoker_batch::{Batch, Part};
use stoker_types::{ReadOptions, Slice, StreamStats};

use crate::part_plan::PartSize;
use crate::{PartStream, Resources, Result, StreamPlan};

/// A rank's batches in order. It prefetches within its quota of a memory budget. Dropping it cancels all of its reads.
pub struct BatchStream {
    /// The parts, each of which is a whole batch.
    parts: PartStream,
}

impl BatchStream {
    pub(crate) fn start(plan: StreamPlan, slice: Slice, options: &ReadOptions, resources: &Resources) -> Self {
        Self { parts: PartStream::start(plan, slice, options, resources, PartSize::Batch) }
    }

    /// Returns the next batch, or `None` after the last one.
    ///
    /// Cancelling the future loses nothing.
    ///
    /// # Errors
    /// The error that prevented the next batch. The stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        Ok(self.parts.next().await?.map(Part::into_batch))
    }

    /// Returns the number of steps from the slice's origin to the end of the epoch. It is the same on all ranks.
    pub fn num_steps(&self) -> u64 {
        self.parts.num_steps()
    }

    /// Returns the columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        self.parts.schema()
    }

    /// Waits until the last rows are being read. Then another stream may be opened beside this one.
    pub fn until_read(&self) -> impl Future<Output = ()> + Send + use<> {
        self.parts.until_read()
    }

    /// Returns whether the last rows are being read or have been read.
    pub fn is_read(&self) -> bool {
        self.parts.is_read()
    }

    /// Tells a prefetching stream to begin, with another memory budget. The time to the first batch is counted from now
    /// on.
    pub fn begin(&mut self, memory_budget_bytes: u64) {
        self.parts.begin(memory_budget_bytes);
    }

    /// Returns the statistics of the stream.
    pub fn stats(&self) -> StreamStats {
        self.parts.stats()
    }
}
