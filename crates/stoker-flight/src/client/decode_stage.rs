//! Decodes images ahead of the consumer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use stoker_stream::{Batch, Held, Quota, StallMeter, Stalls, StreamStats};
use tokio::sync::{mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::client::image_columns::ImageColumns;
use crate::client::sample_stream::Batches;
use crate::encode::record_batch_bytes;
use crate::{Error, Result};

/// Decoded batches that wait to be taken, at most; the memory budget bounds their bytes.
const QUEUE_BATCHES: usize = 4;

/// Batches with tensors in place of files of images, decoded by a task of its own.
///
/// ```text
/// Batches (encoded) ──next──► task ──threads of BatchDecoder──► queue, within the quota ──next──► consumer
/// ```
///
/// Dropping it stops the task; the batch that is being decoded then is finished and dropped.
pub(crate) struct DecodeStage {
    input: mpsc::Receiver<Result<Option<Decoded>>>,
    /// What the stream of encoded batches did so far.
    encoded: Arc<Mutex<StreamStats>>,
    /// What is counted on this end.
    counted: StreamStats,
    stalls: StallMeter,
    opened: Instant,
    is_over: bool,
    /// Of the decoded batches.
    quota: Quota,
    /// The budget of the encoded batches, for the task to follow.
    encoded_budget: watch::Sender<Option<u64>>,
    _task: AbortOnDropHandle<()>,
}

/// A batch and the room that its tensors hold until it is taken.
struct Decoded {
    batch: Batch,
    spans: Stalls,
    _held: Held,
}

/// The task.
struct Worker {
    batches: Batches,
    columns: Arc<ImageColumns>,
    quota: Quota,
    encoded: Arc<Mutex<StreamStats>>,
    encoded_budget: watch::Receiver<Option<u64>>,
    output: mpsc::Sender<Result<Option<Decoded>>>,
}

impl DecodeStage {
    /// Starts to decode, on the current Tokio runtime.
    pub fn start(batches: Batches, columns: ImageColumns, quota: Quota) -> Self {
        let (output, input) = mpsc::channel(QUEUE_BATCHES);
        let encoded = Arc::new(Mutex::new(batches.stats()));
        let (encoded_budget, followed) = watch::channel(None);
        let worker = Worker {
            batches,
            columns: Arc::new(columns),
            quota: quota.clone(),
            encoded: encoded.clone(),
            encoded_budget: followed,
            output,
        };
        Self {
            input,
            encoded,
            counted: StreamStats::default(),
            stalls: StallMeter::default(),
            opened: Instant::now(),
            is_over: false,
            quota,
            encoded_budget,
            _task: AbortOnDropHandle::new(tokio::spawn(worker.run())),
        }
    }

    /// The next batch; `None` after the last one. Cancelling the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<Batch>> {
        if self.is_over {
            return Ok(None);
        }
        self.stalls.asked(Instant::now());
        let stopped = || Err(Error::internal("the task that decodes images stopped early"));
        let decoded = self.input.recv().await.unwrap_or_else(stopped);
        let Some(Decoded { batch, spans, .. }) = decoded.inspect_err(|_| self.is_over = true)? else {
            self.is_over = true;
            return Ok(None);
        };
        let waited = self.stalls.taken(Instant::now(), &spans);
        let since_opened = self.opened.elapsed();
        self.counted.first_batch_nanos.get_or_insert(since_opened.as_nanos().max(1) as u64);
        self.counted.wait_nanos += waited.as_nanos() as u64;
        self.counted.batches += 1;
        self.counted.rows += batch.data.num_rows() as u64;
        self.counted.bytes += record_batch_bytes(&batch.data);
        Ok(Some(batch))
    }

    /// Waits until everything is decoded.
    pub fn until_read(&self) -> impl Future<Output = ()> + Send + use<> {
        self.quota.until_retired()
    }

    /// Whether everything is decoded.
    pub fn is_read(&self) -> bool {
        self.quota.is_retired()
    }

    /// Changes the memory budgets of encoded and of decoded batches; the time to the first batch counts from now on.
    pub fn begin(&mut self, encoded_bytes: u64, decoded_bytes: u64) {
        self.quota.begin(decoded_bytes);
        self.encoded_budget.send_replace(Some(encoded_bytes));
        self.opened = Instant::now();
    }

    /// What the stream did so far: reads are those of the encoded batches, the rest is counted where decoded ones are taken.
    pub fn stats(&self) -> StreamStats {
        let StreamStats { rows, bytes, batches, wait_nanos, first_batch_nanos, .. } = self.counted;
        StreamStats {
            rows,
            bytes,
            batches,
            wait_nanos,
            first_batch_nanos,
            stalls: self.stalls.sum(),
            last_step: self.stalls.last_step(),
            ..*self.encoded.lock()
        }
    }
}

impl Worker {
    async fn run(mut self) {
        loop {
            let outcome = self.decoded().await;
            let is_last = !matches!(outcome, Ok(Some(_)));
            if is_last {
                self.quota.retire();
            }
            if self.output.send(outcome).await.is_err() || is_last {
                return;
            }
        }
    }

    /// The next batch of files; follows the budget meanwhile.
    async fn next_encoded(&mut self) -> Result<Option<Batch>> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.encoded_budget.changed() => {
                    let budget = *self.encoded_budget.borrow_and_update();
                    budget.into_iter().for_each(|bytes| self.batches.begin(bytes));
                }
                next = self.batches.next() => return next,
            }
        }
    }

    async fn decoded(&mut self) -> Result<Option<Decoded>> {
        let next = self.next_encoded().await;
        let stats = self.batches.stats();
        *self.encoded.lock() = stats;
        let Some(batch) = next? else { return Ok(None) };
        let held = self.quota.reserve(self.columns.tensor_bytes(batch.data.num_rows())).await;
        let (columns, begun) = (self.columns.clone(), Instant::now());
        // The room goes along: aborting this task does not stop the decoding threads.
        let decoding = tokio::task::spawn_blocking(move || (columns.decode(batch), held));
        let (batch, held) = decoding.await.map_err(Error::internal)?;
        let batch = batch?;
        let mut spans = Stalls { consumer: Duration::ZERO, ..stats.last_step };
        spans.decode += begun.elapsed();
        Ok(Some(Decoded { batch, spans, _held: held }))
    }
}
