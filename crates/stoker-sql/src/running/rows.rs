//! Runs a plan in its own task, within the limits of its query.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use datafusion::common::Result as DfResult;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt as _, stream};
use stoker_functions::Running;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::{Engine, Error, Result};

/// The most batches that are queued for the consumer.
const QUEUE_BATCHES: usize = 1;

/// The limits on the rows of a result.
#[derive(Clone, Copy)]
pub(crate) struct RowLimits {
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
}

impl RowLimits {
    /// No limits, for rows that are not sent to a client.
    pub(crate) const NONE: Self = Self { rows: u64::MAX, bytes: u64::MAX };
}

/// Waits for a permit, then starts a plan on the engine's threads. Dropping the returned stream stops the plan.
///
/// # Errors
/// `ResourceExhausted` when too many queries run and wait, or when no permit is released in time.
pub(crate) async fn run(
    engine: &Engine,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    limits: RowLimits,
    running: Running,
) -> Result<SendableRecordBatchStream> {
    let place = engine.query_permits().take().await?;
    let schema = plan.schema();
    let (batches, received) = mpsc::channel(QUEUE_BATCHES);
    let task = AbortOnDropHandle::new(engine.threads()?.spawn(async move {
        let mut rows = match execute_stream(plan, context) {
            Ok(rows) => rows,
            Err(error) => {
                batches.send(Err(error)).await.ok();
                return;
            }
        };
        while let Some(batch) = rows.next().await {
            if batches.send(batch).await.is_err() {
                return;
            }
        }
    }));
    let time = engine.options().query.running;
    let rows =
        Rows { task, received, time, left: time, num_rows: 0, num_bytes: 0, limits, _running: running, _place: place };
    let rows = stream::unfold(Some(rows), |rows| async {
        let mut rows = rows?;
        match rows.next().await {
            Ok(Some(batch)) => Some((Ok(batch), Some(rows))),
            Ok(None) => None,
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
}

/// The rows of a running plan.
struct Rows {
    task: AbortOnDropHandle<()>,
    received: mpsc::Receiver<DfResult<RecordBatch>>,
    time: Duration,
    left: Duration,
    num_rows: u64,
    num_bytes: u64,
    limits: RowLimits,
    _running: Running,
    _place: OwnedSemaphorePermit,
}

impl Rows {
    async fn next(&mut self) -> DfResult<Option<RecordBatch>> {
        let begun = Instant::now();
        let batch = tokio::time::timeout(self.left, self.received.recv()).await;
        self.left = self.left.saturating_sub(begun.elapsed());
        match batch {
            Err(_) => {
                let secs = self.time.as_secs_f64();
                Err(Error::exhausted(format!("the query ran for more than {secs} s, the limit")).into())
            }
            Ok(Some(batch)) => batch.and_then(|batch| self.counted(batch)).map(Some),
            // The channel is also closed if the task panicked.
            Ok(None) => {
                (&mut self.task).await.map(|()| None).map_err(|error| DataFusionError::ExecutionJoin(Box::new(error)))
            }
        }
    }

    fn counted(&mut self, batch: RecordBatch) -> DfResult<RecordBatch> {
        self.num_rows += batch.num_rows() as u64;
        if self.num_rows > self.limits.rows {
            let limit = self.limits.rows;
            return Err(Error::exhausted(format!("the result has more than {limit} rows, the limit")).into());
        }
        if self.limits.bytes < u64::MAX {
            self.num_bytes = self.num_bytes.saturating_add(batch.get_array_memory_size() as u64);
        }
        if self.num_bytes > self.limits.bytes {
            let limit = self.limits.bytes;
            return Err(Error::exhausted(format!("the result has more than {limit} bytes, the limit")).into());
        }
        Ok(batch)
    }
}
