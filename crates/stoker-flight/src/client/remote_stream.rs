//! A stream from servers that survives them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::Array;
use futures::future::try_join_all;
use stoker_stream::{Batch, StreamStats};
use stoker_types::{ErrorKind, Slice, StreamSpec};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::client::RemoteLake;
use crate::client::batch_assembler::{BatchAssembler, broken, interleave_parts};
use crate::convert::slice_to_proto;
use crate::proto::{StreamRequest, command::Kind, stream_request::Source};
use crate::{Error, Result};

/// Batches received ahead of the consumer, beside what the connection's window holds.
const BATCHES_AHEAD: usize = 2;
const WAIT_FIRST: Duration = Duration::from_millis(50);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What is asked for, again after every interruption.
pub(crate) struct Request {
    pub lake: RemoteLake,
    pub spec: StreamSpec,
    pub spec_stored: bool,
    pub slice: Slice,
}

/// Batches from servers, received by a task of their own.
pub(crate) struct RemoteStream {
    input: mpsc::Receiver<Result<Batch>>,
    counters: Arc<Counters>,
    opened: Instant,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Counters {
    rows: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    retries: AtomicU64,
    wait_nanos: AtomicU64,
    first_batch_nanos: AtomicU64,
}

impl RemoteStream {
    pub fn start(request: Request) -> Self {
        let (output, input) = mpsc::channel(BATCHES_AHEAD);
        let counters = Arc::new(Counters::default());
        let task = tokio::spawn(receive(request, output, counters.clone()));
        Self { input, counters, opened: Instant::now(), task }
    }

    pub async fn next(&mut self) -> Result<Option<Batch>> {
        let started = Instant::now();
        let Some(batch) = self.input.recv().await else { return Ok(None) };
        let batch = batch?;
        let counters = &self.counters;
        counters.wait_nanos.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        if counters.batches.fetch_add(1, Ordering::Relaxed) == 0 {
            counters.first_batch_nanos.store(self.opened.elapsed().as_nanos().max(1) as u64, Ordering::Relaxed);
        }
        counters.rows.fetch_add(batch.data.num_rows() as u64, Ordering::Relaxed);
        let bytes = batch.data.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
        counters.bytes.fetch_add(bytes.sum::<usize>() as u64, Ordering::Relaxed);
        Ok(Some(batch))
    }

    pub fn stats(&self) -> StreamStats {
        let first = self.counters.first_batch_nanos.load(Ordering::Relaxed);
        StreamStats {
            rows: self.counters.rows.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
            batches: self.counters.batches.load(Ordering::Relaxed),
            retries: self.counters.retries.load(Ordering::Relaxed),
            wait_nanos: self.counters.wait_nanos.load(Ordering::Relaxed),
            first_batch_nanos: (first > 0).then_some(first),
            ..StreamStats::default()
        }
    }
}

impl Drop for RemoteStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Receives all batches; asks any server for the rest when one goes away. The last error ends the stream.
async fn receive(request: Request, output: mpsc::Sender<Result<Batch>>, counters: Arc<Counters>) {
    let mut next_step = request.slice.first_step;
    let mut last_progress = Instant::now();
    let mut wait = WAIT_FIRST;
    loop {
        let before = next_step;
        let error = match receive_from(&request, &mut next_step, &output).await {
            Ok(()) => return,
            Err(error) => error,
        };
        if output.is_closed() {
            return;
        }
        if next_step > before {
            last_progress = Instant::now();
            wait = WAIT_FIRST;
        }
        let again = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Expired | ErrorKind::ResourceExhausted);
        if !again || last_progress.elapsed() > request.lake.options().retry_budget {
            output.send(Err(error)).await.ok();
            return;
        }
        counters.retries.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(%error, step = next_step, "asking again for the rest of the stream");
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// Receives batches from `next_step` on over one connection per endpoint, until the end of the epoch.
async fn receive_from(request: &Request, next_step: &mut u64, output: &mpsc::Sender<Result<Batch>>) -> Result<()> {
    let num_steps = request.slice.num_steps(request.spec.num_rows);
    if *next_step >= num_steps {
        return Ok(());
    }
    let slice = Slice { first_step: *next_step, ..request.slice };
    let source = match request.spec_stored {
        true => Source::StreamId(request.spec.stream_id().to_string()),
        false => Source::Spec(request.spec.to_json()),
    };
    let info = request
        .lake
        .get_flight_info(Kind::Stream(StreamRequest {
            source: Some(source),
            slice: Some(slice_to_proto(&slice)),
            num_endpoints: request.lake.options().num_endpoints,
        }))
        .await?;
    let messages = request.lake.do_get(&info).await?;
    let assemble = |messages| BatchAssembler::new(messages, request.spec.stream_id());
    let mut endpoints: Vec<_> = messages.into_iter().map(assemble).collect();
    let endpoints_count = endpoints.len() as u32;
    while *next_step < num_steps {
        let parts = try_join_all(endpoints.iter_mut().map(|endpoint| async {
            endpoint.next().await?.ok_or_else(|| broken("the server ended the stream early"))
        }));
        let first = request.slice.first_endpoint(*next_step, endpoints_count);
        let batch = interleave_parts(parts.await?, first)?;
        if batch.step != *next_step {
            return Err(Error::internal(format!("step {} came in place of {next_step}", batch.step)));
        }
        *next_step += 1;
        if output.send(Ok(batch)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
