//! Decodes columns before the consumer asks for their batches.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use stoker_batch::{Batch, Held, Quota, StallMeter, record_batch_bytes};
use stoker_clock::Clock;
use stoker_types::{IoTotals, Moment, Stalls, StreamStats, to_nanos};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use super::columns::{DecodedBatch, DecodedColumns};
use super::substitutes::RowSubstitutes;
use crate::sample_stream::halved;
use crate::{BatchSource, Error, Result, WaitClock};

/// The most decoded batches that wait in the queue; the memory budget bounds their bytes.
const QUEUE_BATCHES: usize = 4;

/// The most batches that are decoded at the same time. While the last values of one are decoded, threads without work
/// begin the next one.
const BATCHES_AT_ONCE: usize = 2;

/// A stage that replaces encoded values with tensors, in a task of its own.
///
/// ```text
/// BatchSource (encoded) ──next──► task ──threads of BatchDecoder──► queue, within the quota ──next──► consumer
///                                        two batches at once
/// ```
///
/// Dropping the stage stops the task. The threads finish the batch that they are decoding, and drop it.
pub(crate) struct DecodeStage {
    input: mpsc::Receiver<Result<Option<Decoded>>>,
    /// The statistics of the stream of encoded batches so far.
    encoded: Arc<Mutex<StreamStats>>,
    /// The statistics of the decoded batches that the consumer took.
    counted: StreamStats,
    stalls: StallMeter,
    clock: Clock,
    opened: Moment,
    is_over: bool,
    /// The memory quota of the decoded batches.
    quota: Quota,
    /// Sends the memory budget of the encoded batches to the task.
    encoded_budget: watch::Sender<Option<u64>>,
    waited: WaitClock,
    _task: AbortOnDropHandle<()>,
}

/// A decoded batch, with the memory that its tensors reserve until it is taken.
struct Decoded {
    batch: Batch,
    spans: Stalls,
    _held: Held,
}

/// A batch that is being decoded.
struct Decoding {
    decoded: JoinHandle<Result<DecodedBatch>>,
    /// How the time of the batch's step was spent before.
    spans: Stalls,
    begun: Moment,
}

/// The encoded batches.
struct Encoded {
    batches: Box<dyn BatchSource>,
    budget: watch::Receiver<Option<u64>>,
}

/// The task that decodes.
struct Worker {
    encoded: Encoded,
    /// How the encoded batches ended, until that is delivered.
    end: Option<Result<()>>,
    /// An encoded batch that waits for the memory of its tensors.
    waiting: Option<(Batch, Stalls)>,
    /// Batches that are being decoded, oldest first.
    decoding: VecDeque<Decoding>,
    columns: Arc<DecodedColumns>,
    /// Finds substitutes for bad rows; `None` when a bad row is an error.
    substitutes: Option<RowSubstitutes>,
    /// What the search for substitutes read so far.
    substitutes_read: IoTotals,
    quota: Quota,
    clock: Clock,
    stats: Arc<Mutex<StreamStats>>,
    output: mpsc::Sender<Result<Option<Decoded>>>,
}

impl DecodeStage {
    /// Starts to decode, on the current Tokio runtime.
    pub fn start(
        mut batches: Box<dyn BatchSource>,
        columns: Arc<DecodedColumns>,
        substitutes: Option<RowSubstitutes>,
        quota: Quota,
        clock: Clock,
    ) -> Self {
        let waited = batches.read_ahead();
        let (output, input) = mpsc::channel(QUEUE_BATCHES);
        let encoded = Arc::new(Mutex::new(batches.stats()));
        let (encoded_budget, budget) = watch::channel(None);
        let worker = Worker {
            encoded: Encoded { batches, budget },
            end: None,
            waiting: None,
            decoding: VecDeque::with_capacity(BATCHES_AT_ONCE),
            columns,
            substitutes,
            substitutes_read: IoTotals::default(),
            quota: quota.clone(),
            clock: clock.clone(),
            stats: encoded.clone(),
            output,
        };
        Self {
            input,
            encoded,
            counted: StreamStats::default(),
            stalls: StallMeter::default(),
            opened: clock.now(),
            clock,
            is_over: false,
            quota,
            encoded_budget,
            waited,
            _task: AbortOnDropHandle::new(tokio::spawn(worker.run())),
        }
    }

    /// Returns the next batch, or `None` after the last one. Cancelling the future loses nothing.
    async fn take(&mut self) -> Result<Option<Batch>> {
        if self.is_over {
            return Ok(None);
        }
        self.stalls.asked(self.clock.now());
        let _waiting = self.waited.wait();
        let stopped = || Err(Error::internal("the task that decodes stopped early"));
        let decoded = self.input.recv().await.unwrap_or_else(stopped);
        let Some(Decoded { batch, spans, .. }) = decoded.inspect_err(|_| self.is_over = true)? else {
            self.is_over = true;
            return Ok(None);
        };
        let now = self.clock.now();
        let waited = self.stalls.taken(now, &spans);
        let since_opened = now - self.opened;
        self.counted.first_batch_nanos.get_or_insert(to_nanos(since_opened).max(1));
        self.counted.wait_nanos += to_nanos(waited);
        self.counted.batches += 1;
        self.counted.rows += batch.data.num_rows() as u64;
        self.counted.bytes += record_batch_bytes(&batch.data);
        Ok(Some(batch))
    }
}

impl BatchSource for DecodeStage {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.take().boxed()
    }

    /// Waits until no batch is left to begin with.
    fn until_read(&self) -> BoxFuture<'static, ()> {
        self.quota.until_retired().boxed()
    }

    /// Whether no batch is left to begin with.
    fn is_read(&self) -> bool {
        self.quota.is_retired()
    }

    /// Changes the memory budgets of encoded and of decoded batches, which get one half each. The time to the first
    /// batch counts from this call.
    fn begin(&mut self, memory_budget_bytes: u64) {
        let half = halved(memory_budget_bytes);
        self.quota.begin(half);
        self.encoded_budget.send_replace(Some(half));
        self.opened = self.clock.now();
    }

    /// Returns the statistics so far: reads are those of the encoded batches, all else is counted when the consumer
    /// takes decoded batches.
    fn stats(&self) -> StreamStats {
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

impl Encoded {
    /// Returns the next batch. Meanwhile it applies each change of the memory budget. Cancelling the future loses
    /// nothing.
    async fn next(&mut self) -> Result<Option<Batch>> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.budget.changed() => {
                    let budget = *self.budget.borrow_and_update();
                    budget.into_iter().for_each(|bytes| self.batches.begin(bytes));
                }
                next = self.batches.next() => return next,
            }
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

    /// Returns the next decoded batch. Begins to decode the one after it meanwhile.
    async fn decoded(&mut self) -> Result<Option<Decoded>> {
        loop {
            self.begin_waiting().await;
            let is_room = self.waiting.is_none() && self.end.is_none() && self.decoding.len() < BATCHES_AT_ONCE;
            let next = match self.decoding.front_mut() {
                None if !is_room => return self.end.take().unwrap_or(Ok(())).map(|()| None),
                None => self.encoded.next().await,
                Some(oldest) => tokio::select! {
                    biased;
                    decoded = &mut oldest.decoded => return self.finish_oldest(decoded.map_err(Error::internal)??).await,
                    next = self.encoded.next(), if is_room => next,
                },
            };
            let spans = self.note_stats();
            match next {
                Ok(Some(batch)) => self.waiting = Some((batch, spans)),
                Ok(None) => {
                    self.quota.retire();
                    self.end = Some(Ok(()));
                }
                Err(error) => self.end = Some(Err(error)),
            }
        }
    }

    /// Begins to decode the batch that waits, if there is memory for it.
    async fn begin_waiting(&mut self) {
        let Some((batch, spans)) = self.waiting.take() else { return };
        let bytes = self.columns.output_bytes(&batch.data);
        let held = match self.decoding.is_empty() {
            true => Some(self.quota.reserve(bytes).await),
            // A batch that is being decoded releases its memory only after it is delivered, so waiting could be endless.
            false => self.quota.try_reserve(bytes),
        };
        let Some(held) = held else {
            self.waiting = Some((batch, spans));
            return;
        };
        let (columns, begun) = (self.columns.clone(), self.clock.now());
        // The decoding threads get the reservation, because they go on when this task is aborted.
        let decoded = tokio::task::spawn_blocking(move || columns.decode(batch, held));
        self.decoding.push_back(Decoding { decoded, spans, begun });
    }

    /// Finishes the oldest batch that is being decoded.
    async fn finish_oldest(&mut self, decoded: DecodedBatch) -> Result<Option<Decoded>> {
        let Some(Decoding { spans, begun, .. }) = self.decoding.pop_front() else { return Ok(None) };
        let decoded = self.without_bad_rows(decoded).await?;
        let (batch, held) = self.columns.finish(decoded)?;
        let mut spans = Stalls { consumer: Duration::ZERO, ..spans };
        spans.decode += self.clock.since(begun);
        Ok(Some(Decoded { batch, spans, _held: held }))
    }

    /// Replaces the rows that cannot be decoded, or returns an error when bad rows are errors.
    async fn without_bad_rows(&mut self, decoded: DecodedBatch) -> Result<DecodedBatch> {
        if decoded.bad.is_empty() {
            return Ok(decoded);
        }
        let Some(substitutes) = &self.substitutes else { return Err(self.columns.error(&decoded)) };
        let read = &mut self.substitutes_read;
        let replaced = substitutes.replace(decoded, |answer| *read += answer.io).await;
        self.note_stats();
        replaced
    }

    /// Publishes to the consumer's side what was read so far, and returns how the time of the last step was spent.
    fn note_stats(&self) -> Stalls {
        let mut stats = self.encoded.batches.stats();
        stats.add_io(&self.substitutes_read);
        *self.stats.lock() = stats;
        stats.last_step
    }
}
