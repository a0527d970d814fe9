//! A stream from servers that survives them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use stoker_stream::{Batch, ReadOptions, StreamStats};
use stoker_types::{ErrorKind, Slice, StreamSpec};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::client::RemoteLake;
use crate::client::batch_assembler::BatchAssembler;
use crate::client::counters::Counters;
use crate::client::interleave::interleave_batches;
use crate::convert::{endpoint_slice, policy_to_proto, slice_to_proto};
use crate::encode::record_batch_bytes;
use crate::proto::{StreamRequest, command::Kind, stream_request::Source};
use crate::{Error, Result};

/// Batches that wait to be taken, at most; the memory budget bounds their bytes.
const QUEUE_BATCHES: usize = 64;
/// A budget permit stands for so many bytes: semaphores count to 2^32.
const PERMIT_BYTES: u64 = 4 << 10;
/// Waits before asking again double from the first to the last of these.
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// What is asked for, again after every interruption.
pub(crate) struct Request {
    pub lake: RemoteLake,
    pub spec: StreamSpec,
    pub spec_stored: bool,
    pub slice: Slice,
    /// How rows are read; the budget is for bytes of batches that wait to be taken.
    pub options: ReadOptions,
}

/// Batches from servers, received by a task of their own.
pub(crate) struct RemoteStream {
    input: mpsc::Receiver<Result<Received>>,
    counters: Arc<Counters>,
    opened: Instant,
    /// Batches that are still to come; zero after an error.
    missing: u64,
    _task: AbortOnDropHandle<()>,
}

/// A batch and the share of the budget that it holds until it is taken.
struct Received {
    batch: Batch,
    bytes: u64,
    _permit: OwnedSemaphorePermit,
}

impl RemoteStream {
    pub fn start(request: Request) -> Self {
        let num_steps = request.slice.num_steps(request.spec.num_rows);
        let missing = num_steps.saturating_sub(request.slice.first_step);
        let (output, input) = mpsc::channel(QUEUE_BATCHES);
        let counters = Arc::new(Counters::default());
        let budget = u32::try_from((request.options.memory_budget_bytes / PERMIT_BYTES).max(1)).unwrap_or(u32::MAX);
        let receiver = Receiver {
            next_step: request.slice.first_step,
            num_steps,
            budget_permits: budget,
            budget: Arc::new(Semaphore::new(budget as usize)),
            foreign_tickets_refused: false,
            output,
            counters: counters.clone(),
            request,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(receiver.run()));
        Self { input, counters, opened: Instant::now(), missing, _task: task }
    }

    pub async fn next(&mut self) -> Result<Option<Batch>> {
        if self.missing == 0 {
            return Ok(None);
        }
        let started = Instant::now();
        let received = match self.input.recv().await {
            Some(received) => received,
            None => Err(Error::internal("the task that receives batches stopped early")),
        };
        let Received { batch, bytes, _permit } = received.inspect_err(|_| self.missing = 0)?;
        self.missing -= 1;
        self.counters.delivered(batch.data.num_rows() as u64, bytes, started.elapsed(), self.opened.elapsed());
        Ok(Some(batch))
    }

    pub fn stats(&self) -> StreamStats {
        self.counters.snapshot()
    }
}

struct Receiver {
    request: Request,
    /// The first batch that was not handed on.
    next_step: u64,
    num_steps: u64,
    budget: Arc<Semaphore>,
    budget_permits: u32,
    /// Servers do not take each other's tickets: each is asked for its own.
    foreign_tickets_refused: bool,
    output: mpsc::Sender<Result<Received>>,
    counters: Arc<Counters>,
}

impl Receiver {
    /// Receives all batches; asks any server for the rest when one goes away. The last error ends the stream.
    async fn run(mut self) {
        let retry_budget = self.request.lake.options().retry_budget;
        let mut last_progress = Instant::now();
        let mut wait = WAIT_FIRST;
        for attempt in 0.. {
            let before = self.next_step;
            let Err(error) = self.receive(attempt).await else { return };
            if self.output.is_closed() {
                return;
            }
            if self.next_step > before {
                last_progress = Instant::now();
                wait = WAIT_FIRST;
            }
            if !may_ask_again(error.kind()) || last_progress.elapsed() >= retry_budget {
                self.output.send(Err(error)).await.ok();
                return;
            }
            self.counters.retried();
            tracing::debug!(%error, step = self.next_step, "asking again for the rest of the stream");
            match error.kind() {
                ErrorKind::Expired => self.foreign_tickets_refused = true,
                _ => self.request.lake.leave(),
            }
            tokio::time::sleep(jittered(wait)).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Receives batches from `next_step` on over one connection per endpoint, until the end of the epoch. A batch that did not
    /// arrive whole is dropped.
    async fn receive(&mut self, attempt: usize) -> Result<()> {
        if self.next_step >= self.num_steps {
            return Ok(());
        }
        let mut endpoints = self.ask(attempt).await?;
        while self.next_step < self.num_steps {
            let parts = try_join_all(endpoints.iter_mut().map(|endpoint| endpoint.next())).await?;
            let first = self.request.slice.first_endpoint(self.next_step, parts.len() as u32);
            let batch = interleave_batches(parts, first as usize)?;
            let bytes = record_batch_bytes(&batch.data);
            let permits = u32::try_from(bytes / PERMIT_BYTES).unwrap_or(u32::MAX).clamp(1, self.budget_permits);
            let permit = self.budget.clone().acquire_many_owned(permits).await.map_err(Error::internal)?;
            self.next_step += 1;
            if self.output.send(Ok(Received { batch, bytes, _permit: permit })).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Asks for the rest of the slice. Ranks and endpoints begin at different servers, and go on to the next after a failure.
    async fn ask(&self, attempt: usize) -> Result<Vec<BatchAssembler>> {
        let Request { lake, spec, spec_stored, slice, options } = &self.request;
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
            read: Some(policy_to_proto(options)),
        };
        let (info, _) = lake.get_flight_info(Kind::Stream(request)).await?;
        if info.endpoint.len() != num_endpoints as usize {
            return Err(Error::internal(format!(
                "{num_endpoints} endpoints were asked for, {} came",
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
            BatchAssembler::new(messages, spec.stream_id(), slice, spec.num_rows)
        };
        Ok((0..num_endpoints).zip(readers).map(assembler).collect())
    }
}

/// Whether another server, or the same one later, may answer differently.
fn may_ask_again(kind: ErrorKind) -> bool {
    match kind {
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

/// Half the wait to all of it, so that the ranks of a job do not come back in step.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(0) as u32;
    wait.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX))
}
