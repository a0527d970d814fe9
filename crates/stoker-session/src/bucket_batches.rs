//! Batches of buckets as batches of their rows.

use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_batch::{Batch, bucket_rows};
use stoker_types::StreamStats;

use crate::{BatchSource, Result, WaitClock};

/// A source of batches of rows, from one of batches of buckets.
pub(crate) struct BucketBatches {
    batches: Box<dyn BatchSource>,
    /// The columns of the rows.
    schema: SchemaRef,
    /// The number of rows that the consumer took.
    num_rows: u64,
}

impl BucketBatches {
    /// Takes batches of buckets, whose rows have the columns `schema`.
    pub fn new(batches: Box<dyn BatchSource>, schema: SchemaRef) -> Self {
        Self { batches, schema, num_rows: 0 }
    }

    async fn take(&mut self) -> Result<Option<Batch>> {
        let Some(batch) = self.batches.next().await? else { return Ok(None) };
        let rows = bucket_rows(batch, &self.schema)?;
        self.num_rows += rows.data.num_rows() as u64;
        Ok(Some(rows))
    }
}

impl BatchSource for BucketBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.take().boxed()
    }

    fn read_ahead(&mut self) -> WaitClock {
        self.batches.read_ahead()
    }

    fn until_read(&self) -> BoxFuture<'static, ()> {
        self.batches.until_read()
    }

    fn is_read(&self) -> bool {
        self.batches.is_read()
    }

    fn begin(&mut self, memory_budget_bytes: u64) {
        self.batches.begin(memory_budget_bytes);
    }

    fn stats(&self) -> StreamStats {
        StreamStats { rows: self.num_rows, ..self.batches.stats() }
    }
}
