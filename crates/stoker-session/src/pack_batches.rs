//! Batches of packs with all of their columns.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_batch::{Batch, BufferPool, PackColumns};
use stoker_types::StreamStats;

use crate::{BatchSource, Result, WaitClock};

/// A source of batches with all columns of packs, from one of batches as they travel.
pub(crate) struct PackBatches {
    batches: Box<dyn BatchSource>,
    columns: Arc<PackColumns>,
    pool: BufferPool,
}

impl PackBatches {
    /// Takes batches without the columns that `columns` makes, whose memory comes from `pool`.
    pub fn new(batches: Box<dyn BatchSource>, columns: Arc<PackColumns>, pool: BufferPool) -> Self {
        Self { batches, columns, pool }
    }

    async fn take(&mut self) -> Result<Option<Batch>> {
        let Some(batch) = self.batches.next().await? else { return Ok(None) };
        let data = self.columns.complete(&batch.data, Some(&self.pool))?;
        Ok(Some(Batch { data, ..batch }))
    }
}

impl BatchSource for PackBatches {
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
        self.batches.stats()
    }
}
