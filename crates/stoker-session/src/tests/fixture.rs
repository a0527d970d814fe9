//! A lake whose answers a test makes, and a stream of numbers.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use stoker_batch::{Batch, MemoryBudget, RowsBeside};
use stoker_clock::{Clock, Environment, ManualClock, Random};
use stoker_types::calls::{Answering, Answers, Beside, Call, decode_answer, encode_call};
use stoker_types::{
    BatchSize, Batching, ColumnClip, Context, Cursor, Digest, LastBatch, Mixing, OrderOptions, ParamValue,
    ProgressSink, ReadOptions, SPEC_VERSION, ShuffleMode, Slice, SourceSpec, SqlOptions, StatementOutcome, StreamSpec,
    StreamStats, Topology,
};

use crate::session::SessionOptions;
use crate::{BatchSource, Error, Lake, Patience, PlannedStream, Result, SqlResult, StreamHandle, StreamSource};

/// The rows of an epoch.
pub const NUM_ROWS: u64 = 10;

/// The options of one rank with batches of two rows.
pub fn options() -> SessionOptions {
    let batching = Batching { size: BatchSize::Global(2), last: LastBatch::Uneven };
    SessionOptions::new(Topology::SINGLE, batching)
}

/// Polls a future once.
pub fn poll_once<T>(future: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    future.poll(&mut TaskContext::from_waker(Waker::noop()))
}

/// Answers a call: its name and its body give the body of the answer.
type Answer = dyn Fn(&'static str, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> + Send + Sync;

/// A lake whose answers a test makes. Each of its streams has [`NUM_ROWS`] rows.
pub struct FakeLake {
    patience: Patience,
    has_replicas: bool,
    answer: Box<Answer>,
}

impl FakeLake {
    pub fn new(
        answer: impl Fn(&'static str, Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>>> + Send + Sync + 'static,
    ) -> Self {
        let patience = Patience::with_known(Duration::from_secs(60));
        Self { patience, has_replicas: false, answer: Box::new(answer) }
    }

    /// Returns the same lake with a clock of a test. Its random numbers are zeros.
    pub fn with_clock(self, time: &ManualClock) -> Self {
        let environment = Environment { clock: Clock::from(time), random: Random::given([]) };
        Self { patience: self.patience.with_environment(environment), ..self }
    }

    /// Returns the same lake behind several servers.
    pub fn with_replicas(self) -> Self {
        Self { has_replicas: true, ..self }
    }
}

impl Answering for FakeLake {
    type Error = Error;
}

impl<C: Call> Answers<C> for FakeLake {
    async fn answer(&self, _: &Context, call: C) -> Result<C::Answer> {
        let answer = (self.answer)(C::NAME, encode_call(&call)?).await?;
        Ok(decode_answer::<C>(answer)?)
    }
}

fn not_asked<T: Send + 'static>() -> BoxFuture<'static, Result<T>> {
    ready(Err(Error::internal("no test asks this"))).boxed()
}

impl Lake for FakeLake {
    fn is_local(&self) -> bool {
        false
    }

    fn has_replicas(&self) -> bool {
        self.has_replicas
    }

    fn patience(&self) -> &Patience {
        &self.patience
    }

    fn sql_schema<'a>(&'a self, _: &'a str, _: &'a [ParamValue]) -> BoxFuture<'a, Result<SchemaRef>> {
        not_asked()
    }

    fn sql<'a>(&'a self, _: &'a str, _: &'a [ParamValue], _: SqlOptions) -> BoxFuture<'a, Result<SqlResult>> {
        not_asked()
    }

    fn execute<'a>(
        &'a self,
        _: &'a Context,
        _: &'a str,
        _: &'a [ParamValue],
        _: &'a ProgressSink<'a>,
    ) -> BoxFuture<'a, Result<StatementOutcome>> {
        not_asked()
    }

    fn plan<'a>(&'a self, _: StreamSource<'a>) -> BoxFuture<'a, Result<StreamHandle>> {
        ready(Ok(numbers())).boxed()
    }
}

/// Plans the stream of numbers.
pub fn numbers() -> StreamHandle {
    let order = OrderOptions {
        mode: ShuffleMode::Sequential,
        num_lanes: 1,
        rows_per_block: 1,
        mixing: Mixing::Windows { rows_per_window: 1 },
    };
    let source = SourceSpec {
        sql: "SELECT id FROM t".into(),
        params: Vec::new(),
        snapshots: Vec::new(),
        tables: Vec::new(),
        row_set: Digest::of(b"rows"),
        num_rows: NUM_ROWS,
        order,
        weight: None,
        pack: None,
        bucket: None,
    };
    let spec = StreamSpec { version: SPEC_VERSION, sources: vec![source], mixture: None, num_rows: NUM_ROWS, seed: 1 };
    StreamHandle::new(Numbers(spec), Duration::ZERO, MemoryBudget::default())
}

/// A stream whose rows are their positions.
struct Numbers(StreamSpec);

impl PlannedStream for Numbers {
    fn spec(&self) -> &StreamSpec {
        &self.0
    }

    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]))
    }

    fn spec_stored(&self) -> bool {
        true
    }

    fn row_bytes(&self) -> u64 {
        8
    }

    fn open(&self, slice: &Slice, _: &ReadOptions) -> Result<Box<dyn BatchSource>> {
        let (spec, schema) = (self.0.clone(), self.schema());
        Ok(Box::new(NumberBatches { spec, schema, slice: *slice, step: slice.first_step, num_waits: 0 }))
    }

    fn with_clips(&self, _: &[ColumnClip]) -> Result<Box<dyn PlannedStream>> {
        Ok(Box::new(Self(self.0.clone())))
    }

    fn nulls(&self, _: Vec<String>) -> BoxFuture<'_, Result<Vec<String>>> {
        not_asked()
    }

    fn row_addrs(&self, _: u64, _: Range<u64>) -> BoxFuture<'_, Result<Vec<Vec<u64>>>> {
        not_asked()
    }

    fn rows_beside<'a>(&'a self, _: u64, _: &'a [Beside], _: &'a ReadOptions) -> BoxFuture<'a, Result<RowsBeside>> {
        not_asked()
    }

    fn reweigh<'a>(&'a self, _: u64, _: u64, _: &'a [f64]) -> BoxFuture<'a, Result<StreamHandle>> {
        not_asked()
    }
}

/// The polls of a fetch before a batch is there: the first one also opens the next epoch, and polls again.
const NUM_WAITS: u32 = 2;

/// The batches of a slice. The consumer waits for each of them.
struct NumberBatches {
    spec: StreamSpec,
    schema: SchemaRef,
    slice: Slice,
    step: u64,
    /// How often the consumer has waited for the next batch.
    num_waits: u32,
}

impl NumberBatches {
    fn batch(&self) -> Result<Option<Batch>> {
        if self.step >= self.slice.num_steps(self.spec.num_rows) {
            return Ok(None);
        }
        let positions = self.slice.positions(self.step, self.spec.num_rows);
        let ids = Int64Array::from_iter_values(positions.clone().map(|position| position as i64));
        let data = RecordBatch::try_new(self.schema.clone(), vec![Arc::new(ids)]).map_err(Error::internal)?;
        let (num_valid, row_addrs, substituted) = (data.num_rows(), Vec::new(), Vec::new());
        let cursor = Cursor { stream_id: self.spec.stream_id(), epoch: self.slice.epoch, position: positions.end };
        Ok(Some(Batch { step: self.step, cursor, data, num_valid, row_addrs, substituted, buckets: None }))
    }
}

impl BatchSource for NumberBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>>> {
        poll_fn(|context| {
            if self.num_waits < NUM_WAITS {
                self.num_waits += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let batch = self.batch();
            (self.step, self.num_waits) = (self.step + 1, 0);
            Poll::Ready(batch)
        })
        .boxed()
    }

    fn until_read(&self) -> BoxFuture<'static, ()> {
        ready(()).boxed()
    }

    fn is_read(&self) -> bool {
        true
    }

    fn begin(&mut self, _: u64) {}

    fn stats(&self) -> StreamStats {
        StreamStats::default()
    }
}
