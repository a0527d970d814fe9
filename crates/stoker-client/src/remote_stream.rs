//! A stream of batches from servers, which continues at another server when one fails.

use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use stoker_batch::{Batch, BufferPool, Held, Quota, StallMeter, interleave_batches, record_batch_bytes};
use stoker_clock::{Clock, Environment};
use stoker_session::{BatchSource, Error, Lake, Result, WaitClock, Waits};
use stoker_types::{ColumnClip, ErrorKind, Moment, ReadOptions, Slice, Stalls, StreamSpec, StreamStats, to_usize};
use stoker_wire::convert::{endpoint_slice, policy_to_proto, slice_to_proto};
use stoker_wire::proto::{StreamRequest, command::Kind, stream_request::Source};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::RemoteLake;
use crate::batch_assembler::{BatchAssembler, ended_early};
use crate::counters::Counters;
use crate::row_patience::RowPatience;

/// The most batches that wait in the queue; the memory budget bounds their bytes.
const QUEUE_BATCHES: usize = 64;

/// The parameters of a stream, with which the client makes each request.
pub(crate) struct Request {
    pub lake: RemoteLake,
    pub spec: StreamSpec,
    pub spec_stored: bool,
    /// The schema of the batches.
    pub schema: SchemaRef,
    pub slice: Slice,
    /// How rows are read. The memory budget is for batches that wait to be taken.
    pub options: ReadOptions,
    /// The clips that are decoded of columns of videos.
    pub clips: Vec<ColumnClip>,
}

/// Batches from servers, received by a task of its own.
pub(crate) struct RemoteStream {
    input: mpsc::Receiver<Result<Received>>,
    counters: Arc<Counters>,
    stalls: StallMeter,
    clock: Clock,
    opened: Moment,
    /// The number of batches that are still to come; zero after an error.
    missing: u64,
    quota: Quota,
    waited: WaitClock,
    /// Whether a task takes the batches before the consumer asks for them.
    is_read_ahead: bool,
    _task: AbortOnDropHandle<()>,
}

/// A received batch, with the memory that it reserves until it is taken.
struct Received {
    batch: Batch,
    bytes: u64,
    /// How the time until the batch came was spent.
    spans: Stalls,
    _held: Held,
}

impl RemoteStream {
    pub fn start(request: Request) -> Self {
        let num_steps = request.slice.num_steps(request.spec.num_rows);
        let missing = num_steps.saturating_sub(request.slice.first_step);
        let (output, input) = mpsc::channel(QUEUE_BATCHES);
        let counters = Arc::new(Counters::default());
        let budget = request.lake.budget();
        let clock = request.lake.patience().clock().clone();
        let (quota, waited) = (budget.join_with(&request.options), WaitClock::new(clock.clone()));
        let receiver = Receiver {
            next_step: request.slice.first_step,
            num_steps,
            quota: quota.clone(),
            pool: budget.pool().clone(),
            foreign_tickets_refused: false,
            output,
            counters: counters.clone(),
            waited: waited.clone(),
            request,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(receiver.run()));
        let (stalls, opened) = (StallMeter::default(), clock.now());
        Self { input, counters, stalls, clock, opened, missing, quota, waited, is_read_ahead: false, _task: task }
    }

    /// Returns the next batch, or `None` after the last one. Cancelling the future loses nothing.
    async fn take(&mut self) -> Result<Option<Batch>> {
        if self.missing == 0 {
            return Ok(None);
        }
        self.stalls.asked(self.clock.now());
        let _waiting = (!self.is_read_ahead).then(|| self.waited.wait());
        let received = match self.input.recv().await {
            Some(received) => received,
            None => Err(Error::internal("the task that receives batches stopped early")),
        };
        let Received { batch, bytes, spans, _held } = received.inspect_err(|_| self.missing = 0)?;
        self.missing -= 1;
        let now = self.clock.now();
        let waited = self.stalls.taken(now, &spans);
        self.counters.delivered(batch.data.num_rows() as u64, bytes, waited, now - self.opened);
        Ok(Some(batch))
    }
}

impl BatchSource for RemoteStream {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        self.take().boxed()
    }

    fn read_ahead(&mut self) -> WaitClock {
        self.is_read_ahead = true;
        self.waited.clone()
    }

    /// Waits until all batches were received.
    fn until_read(&self) -> BoxFuture<'static, ()> {
        self.quota.until_retired().boxed()
    }

    /// Whether all batches were received.
    fn is_read(&self) -> bool {
        self.quota.is_retired()
    }

    /// Changes the memory budget. The time to the first batch counts from this call.
    fn begin(&mut self, memory_budget_bytes: u64) {
        self.quota.begin(memory_budget_bytes);
        self.opened = self.clock.now();
    }

    fn stats(&self) -> StreamStats {
        let (stalls, last_step) = (self.stalls.sum(), self.stalls.last_step());
        StreamStats { stalls, last_step, ..self.counters.snapshot() }
    }
}

struct Receiver {
    request: Request,
    /// The step of the first batch that was not put into the queue.
    next_step: u64,
    num_steps: u64,
    quota: Quota,
    pool: BufferPool,
    /// Whether a server refused the ticket of another server. Each server then gets only tickets that it signed itself.
    foreign_tickets_refused: bool,
    output: mpsc::Sender<Result<Received>>,
    counters: Arc<Counters>,
    /// Measures how long the consumer waits: only that time counts against the retry budget.
    waited: WaitClock,
}

impl Receiver {
    /// Receives all batches, then leaves the memory that it does not hold to other streams.
    async fn run(mut self) {
        self.receive_all().await;
        self.quota.retire();
    }

    /// Receives all batches. When a server fails, it requests the rest from any server. An error that is not retried
    /// ends the stream.
    async fn receive_all(&mut self) {
        let retry_budget = self.retry_budget();
        let Environment { clock, random } = self.request.lake.patience().environment().clone();
        let (mut last_progress, mut failures, mut waits) = (clock.now(), 0, Waits::default());
        let mut waited_before = self.waited.waited();
        for attempt in 0.. {
            let before = self.next_step;
            let received = self.receive(attempt).await;
            if self.output.is_closed() {
                return;
            }
            let Err(error) = received else {
                if self.next_step >= self.num_steps {
                    return;
                }
                self.quota.until_begun().await;
                (last_progress, waited_before) = (clock.now(), self.waited.waited());
                continue;
            };
            if self.next_step > before {
                (last_progress, failures, waits) = (clock.now(), 0, Waits::default());
                waited_before = self.waited.waited();
            }
            failures += 1;
            if !may_ask_again(&error) || self.waited.waited() - waited_before >= retry_budget {
                let elapsed = clock.since(last_progress);
                let error = error.after(&format!("receiving step {}", self.next_step), failures, elapsed);
                self.output.send(Err(error)).await.ok();
                return;
            }
            self.counters.retried();
            tracing::debug!(%error, step = self.next_step, "asking again for the rest of the stream");
            match error.kind() {
                ErrorKind::Expired => self.foreign_tickets_refused = true,
                _ => self.request.lake.leave(),
            }
            clock.sleep(waits.pause(&random)).await;
        }
    }

    fn retry_budget(&self) -> Duration {
        let Request { lake, options, .. } = &self.request;
        options.retry_budget.unwrap_or_else(|| lake.patience().budget())
    }

    /// Receives batches from `next_step` to the end of the epoch, over one connection per endpoint. A prefetching
    /// stream, which has not begun, requests only its next batch, so that servers hold nothing for it meanwhile. A
    /// batch that did not arrive whole is dropped.
    async fn receive(&mut self, attempt: usize) -> Result<()> {
        if self.next_step >= self.num_steps {
            return Ok(());
        }
        let clock = self.request.lake.patience().clock().clone();
        let begun = clock.now();
        let first_batch_only = !self.quota.has_begun();
        let mut endpoints = self.ask(attempt, first_batch_only).await?;
        // The time before the first message counts as time of the network.
        let mut way = clock.since(begun);
        while self.next_step < self.num_steps {
            let received = try_join_all(endpoints.iter_mut().map(|endpoint| endpoint.next())).await?;
            let Some(received) = received.into_iter().collect::<Option<Vec<_>>>() else {
                return if first_batch_only { Ok(()) } else { Err(ended_early().into()) };
            };
            let (parts, spans): (Vec<Batch>, Vec<Stalls>) = received.into_iter().unzip();
            // The batch waited for the slowest endpoint.
            let mut spans = spans.into_iter().max_by_key(Stalls::total).unwrap_or_default();
            spans.network += std::mem::take(&mut way);
            #[expect(
                clippy::cast_possible_truncation,
                reason = "an answer, which has a limited size, lists the endpoints"
            )]
            let num_parts = parts.len() as u32;
            let first = self.request.slice.first_endpoint(self.next_step, num_parts);
            let joining = clock.now();
            let batch = interleave_batches(parts, to_usize(first))?;
            spans.decode += clock.since(joining);
            let bytes = record_batch_bytes(&batch.data);
            let held = self.quota.reserve(bytes).await;
            self.next_step += 1;
            let sent = self.output.send(Ok(Received { batch, bytes, spans, _held: held })).await;
            if sent.is_err() || first_batch_only {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Requests the rest of the slice. Ranks and endpoints begin at different servers, and each attempt begins at the
    /// next server.
    async fn ask(&self, attempt: usize, first_batch_only: bool) -> Result<Vec<BatchAssembler>> {
        let Request { lake, spec, spec_stored, schema, slice, options, clips } = &self.request;
        let slice = Slice { first_step: self.next_step, ..*slice };
        let num_endpoints = lake.options().num_endpoints.max(1);
        let source = match spec_stored {
            true => Source::StreamId(spec.stream_id().to_string()),
            false => Source::Spec(spec.to_json()),
        };
        let request = StreamRequest {
            source: Some(source),
            slice: Some(slice_to_proto(&slice)),
            num_endpoints,
            read: Some(policy_to_proto(options, first_batch_only).with_clips(clips)),
        };
        let (info, _) = lake.get_flight_info(Kind::Stream(request)).await?;
        if info.endpoint.len() != num_endpoints as usize {
            return Err(Error::internal(format!(
                "{num_endpoints} endpoints were requested, the server sent {}",
                info.endpoint.len()
            )));
        }
        let first = (slice.topology.rank as usize).wrapping_mul(num_endpoints as usize).wrapping_add(attempt);
        let server = |endpoint: usize| match self.foreign_tickets_refused {
            true => lake.current_server(),
            false => first.wrapping_add(endpoint),
        };
        let readers = lake.do_get(&info, server).await?;
        let assembler = |(endpoint, messages)| {
            let slice = endpoint_slice(&slice, endpoint, num_endpoints);
            let (id, num_rows, pool) = (spec.stream_id(), spec.num_rows, self.pool.clone());
            let patience = RowPatience::new(self.waited.clone(), self.retry_budget());
            BatchAssembler::new(messages, schema.clone(), id, slice, num_rows, pool, patience)
        };
        Ok((0..num_endpoints).zip(readers).map(assembler).collect())
    }
}

/// Whether a retry, at another server or later, may succeed. An error of this process, which has no memory for a batch,
/// is final.
fn may_ask_again(error: &Error) -> bool {
    match error.kind() {
        _ if is_of_this_process(error) => false,
        ErrorKind::Unavailable | ErrorKind::Expired | ErrorKind::ResourceExhausted => true,
        ErrorKind::InvalidRequest
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::StateMismatch
        | ErrorKind::DataCorrupt
        | ErrorKind::Cancelled
        | ErrorKind::Internal => false,
    }
}

/// Whether the error is one of batches in this process rather than of a server.
fn is_of_this_process(error: &Error) -> bool {
    error.lower::<stoker_batch::Error>().is_some() || matches!(error.lower(), Some(stoker_wire::Error::Batch(_)))
}
