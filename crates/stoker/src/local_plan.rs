//! Streams that the engine of this process planned.

use std::ops::Range;

use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::BoxFuture;
use stoker_batch::{Batch, RowsBeside};
use stoker_session::{BatchSource, Lake, PlannedStream, Result, StreamHandle};
use stoker_stream::{BatchStream, StreamPlan, WeightHistory};
use stoker_types::calls::{Beside, Call, FindRows};
use stoker_types::{ColumnClip, ReadOptions, Slice, StreamSpec, StreamStats};

use crate::local_lake::LocalLake;

/// The engine's plan, and the lake that it is for.
pub(crate) struct LocalPlan {
    plan: StreamPlan,
    lake: LocalLake,
}

impl LocalPlan {
    pub fn new(plan: StreamPlan, lake: LocalLake) -> Self {
        Self { plan, lake }
    }
}

impl PlannedStream for LocalPlan {
    fn spec(&self) -> &StreamSpec {
        self.plan.spec()
    }

    fn schema(&self) -> SchemaRef {
        self.plan.schema()
    }

    fn spec_stored(&self) -> bool {
        self.plan.spec_stored()
    }

    fn row_bytes(&self) -> u64 {
        self.plan.row_bytes()
    }

    fn open(&self, slice: &Slice, options: &ReadOptions) -> Result<Box<dyn BatchSource>> {
        Ok(Box::new(LocalBatches(self.plan.open_within(self.lake.resources(), slice, options)?)))
    }

    fn with_clips(&self, clips: &[ColumnClip]) -> Result<Box<dyn PlannedStream>> {
        Ok(Box::new(Self::new(self.plan.with_clips(clips)?, self.lake.clone())))
    }

    fn nulls(&self, columns: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>> {
        async move { Ok(self.plan.nulls(&columns).await?) }.boxed()
    }

    fn row_addrs(&self, epoch: u64, positions: Range<u64>) -> BoxFuture<'_, Result<Vec<Vec<u64>>>> {
        async move {
            let positions: Vec<u64> = positions.collect();
            let call = || async { Ok(self.plan.row_addrs(epoch, &positions).await?) };
            self.lake.patience().ask(FindRows::DOING, call).await
        }
        .boxed()
    }

    fn rows_beside<'a>(
        &'a self,
        epoch: u64,
        wanted: &'a [Beside],
        options: &'a ReadOptions,
    ) -> BoxFuture<'a, Result<RowsBeside>> {
        async move { Ok(self.plan.rows_beside(self.lake.resources(), epoch, wanted, options).await?) }.boxed()
    }

    fn reweigh<'a>(&'a self, epoch: u64, position: u64, weights: &'a [f64]) -> BoxFuture<'a, Result<StreamHandle>> {
        async move {
            let call =
                || async { Ok(self.plan.reweigh(&self.lake, epoch, position, weights, WeightHistory::Linked).await?) };
            Ok(self.lake.handle(self.lake.patience().ask("changing weights", call).await?))
        }
        .boxed()
    }
}

/// The batches of the engine.
struct LocalBatches(BatchStream);

impl BatchSource for LocalBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        async { Ok(self.0.next().await?) }.boxed()
    }

    fn until_read(&self) -> BoxFuture<'static, ()> {
        self.0.until_read().boxed()
    }

    fn is_read(&self) -> bool {
        self.0.is_read()
    }

    fn begin(&mut self, memory_budget_bytes: u64) {
        self.0.begin(memory_budget_bytes);
    }

    fn stats(&self) -> StreamStats {
        self.0.stats()
    }
}
