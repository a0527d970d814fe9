//! The consumer's end of a stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow_schema::SchemaRef;
use stoker_chunks::{ChunkScan, ChunkScanOptions};
use stoker_types::Slice;
use tokio::sync::mpsc;

use crate::batch_builder::Delivered;
use crate::planner::{AbortOnDrop, Planner};
use crate::stats::Counters;
use crate::{Batch, Error, ReadOptions, Result, StreamPlan, StreamStats};

/// Finished batches that wait to be taken; the memory budget bounds their bytes.
const QUEUE_BATCHES: usize = 64;

/// A rank's batches in order. Reads ahead within the memory budget; dropping it stops everything.
pub struct BatchStream {
    input: mpsc::Receiver<Result<Delivered>>,
    counters: Arc<Counters>,
    opened: Instant,
    num_steps: u64,
    /// Batches that are still to come; zero after an error.
    missing: u64,
    schema: SchemaRef,
    _planner: AbortOnDrop<()>,
}

impl BatchStream {
    pub(crate) fn start(plan: StreamPlan, slice: Slice, options: ReadOptions) -> Self {
        let scan = ChunkScan::new(ChunkScanOptions {
            local_threads: options.io_threads,
            verify: options.verify,
            retry: options.retry(),
            pool_bytes: usize::try_from(options.memory_budget_bytes).unwrap_or(usize::MAX),
            ..ChunkScanOptions::default()
        });
        let (output, input) = mpsc::channel(QUEUE_BATCHES);
        let counters = Arc::new(Counters::new(scan.stats().clone()));
        let num_steps = slice.num_steps(plan.num_rows());
        let missing = num_steps.saturating_sub(slice.first_step);
        let schema = plan.schema();
        let planner = Planner::new(plan, slice, &options, scan, output);
        let planner = AbortOnDrop(tokio::spawn(planner.run()));
        Self { input, counters, opened: Instant::now(), num_steps, missing, schema, _planner: planner }
    }

    /// The next batch; `None` after the last one.
    ///
    /// Cancelling the future loses nothing.
    ///
    /// # Errors
    /// What stood in the way of the next batch. The stream ends with it.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        if self.missing == 0 {
            return Ok(None);
        }
        let started = Instant::now();
        let stopped = || Error::Internal { reason: "the task that reads ahead stopped early".into() };
        let delivered = self.input.recv().await.unwrap_or_else(|| Err(stopped()));
        let delivered = delivered.inspect_err(|_| self.missing = 0)?;
        self.missing -= 1;
        self.counters.wait_nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if self.counters.batches.fetch_add(1, Ordering::Relaxed) == 0 {
            self.counters.first_batch_nanos.store(self.opened.elapsed().as_nanos().max(1) as u64, Ordering::Relaxed);
        }
        self.counters.rows.fetch_add(delivered.batch.data.num_rows() as u64, Ordering::Relaxed);
        self.counters.bytes.fetch_add(delivered.bytes, Ordering::Relaxed);
        Ok(Some(delivered.batch))
    }

    /// Steps from the slice's origin to the end of the epoch; equal on all ranks.
    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// The columns of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// What the stream did so far.
    pub fn stats(&self) -> StreamStats {
        self.counters.snapshot()
    }
}
