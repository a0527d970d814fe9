//! The metrics of a server, as OpenMetrics text.
//!
//! The values of labels are fixed in this file (methods, gRPC codes, causes and results), so that clients cannot create
//! new ones.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use stoker_session::{Error, Result};

use crate::process::Process;
use crate::state::ServerState;

/// The number of buckets of durations: their bounds double from 1 ms to 65.5 s.
const NUM_BUCKETS: u16 = 17;

/// A method of the Flight service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(crate) enum Method {
    Handshake,
    ListFlights,
    GetFlightInfo,
    PollFlightInfo,
    GetSchema,
    DoGet,
    DoPut,
    DoExchange,
    DoAction,
    ListActions,
    /// Any other path.
    Other,
}

impl Method {
    /// Returns the method that the path of a request names.
    pub fn of(path: &str) -> Self {
        match path.rsplit('/').next().unwrap_or_default() {
            "Handshake" => Self::Handshake,
            "ListFlights" => Self::ListFlights,
            "GetFlightInfo" => Self::GetFlightInfo,
            "PollFlightInfo" => Self::PollFlightInfo,
            "GetSchema" => Self::GetSchema,
            "DoGet" => Self::DoGet,
            "DoPut" => Self::DoPut,
            "DoExchange" => Self::DoExchange,
            "DoAction" => Self::DoAction,
            "ListActions" => Self::ListActions,
            _ => Self::Other,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    method: Method,
    /// The name of the gRPC code.
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMethod {
    method: Method,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    result: &'static str,
}

type Seconds = Counter<f64, AtomicU64>;

/// The metrics of one server.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<Answered, Counter>,
    durations: Family<OfMethod, Histogram, fn() -> Histogram>,
    first_rows: Histogram,
    read_at: ReadAtScrape,
}

/// Metrics that are looked up when the text is requested.
#[derive(Default)]
struct ReadAtScrape {
    is_ready: Gauge,
    streams_running: Gauge,
    streams_max: Gauge,
    streams_ended: Counter,
    queries_running: Gauge,
    queries_waiting: Gauge,
    queries_refused: Counter,
    batches: Counter,
    rows: Counter,
    bytes: Counter,
    bytes_sent: Counter,
    bytes_read: Counter,
    cache_hit_bytes: Counter,
    cache_miss_bytes: Counter,
    waits: Family<Cause, Seconds>,
    reads: Family<Outcome, Counter>,
    store_requests: Family<Outcome, Counter>,
    memory_budget_bytes: Gauge,
    memory_held_bytes: Gauge,
    resident_bytes: Gauge,
    open_files: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("stoker");
        let requests = Family::default();
        registry.register("requests", "Requests that were answered, by method and gRPC code", requests.clone());
        let durations = Family::new_with_constructor(histogram as fn() -> Histogram);
        let text = "Seconds from a request to its answer, for DoGet to the beginning of the answer";
        registry.register("request_duration_seconds", text, durations.clone());
        let first_rows = histogram();
        let text = "Seconds from a DoGet for a stream to its first rows";
        registry.register("stream_first_rows_seconds", text, first_rows.clone());
        let read_at = ReadAtScrape::default();
        read_at.register(&mut registry);
        Self { registry, requests, durations, first_rows, read_at }
    }
}

fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, NUM_BUCKETS))
}

impl Metrics {
    /// Counts a response.
    pub fn answered(&self, method: Method, code: tonic::Code, duration: Duration) {
        self.requests.get_or_create(&Answered { method, code: name(code) }).inc();
        self.durations.get_or_create(&OfMethod { method }).observe(duration.as_secs_f64());
    }

    /// Records the time from a DoGet to the stream's first rows.
    pub fn first_rows(&self, duration: Duration) {
        self.first_rows.observe(duration.as_secs_f64());
    }

    /// Returns the current values of all metrics as text.
    ///
    /// # Errors
    /// `Internal` if the text cannot be encoded, which would be a bug.
    pub fn text(&self, state: &ServerState, is_ready: bool) -> Result<String> {
        self.read_at.read(state, is_ready);
        let mut out = String::new();
        text::encode(&mut out, &self.registry).map_err(Error::internal)?;
        Ok(out)
    }
}

impl ReadAtScrape {
    fn register(&self, to: &mut Registry) {
        to.register("ready", "1 while the server accepts new streams and queries", self.is_ready.clone());
        to.register("streams_running", "Streams that are sent now", self.streams_running.clone());
        to.register("streams_max", "Streams that may be sent at once", self.streams_max.clone());
        to.register("streams_ended", "Streams that ended", self.streams_ended.clone());
        to.register("queries_running", "Queries that are being computed or sent", self.queries_running.clone());
        to.register("queries_waiting", "Queries that wait to run", self.queries_waiting.clone());
        to.register("queries_refused", "Queries refused: the server was busy", self.queries_refused.clone());
        to.register("stream_batches", "Batches that streams delivered", self.batches.clone());
        to.register("stream_rows", "Rows that streams delivered", self.rows.clone());
        to.register("stream_column_bytes", "Bytes of the delivered columns", self.bytes.clone());
        to.register("stream_sent_bytes", "Bytes of the messages of streams", self.bytes_sent.clone());
        to.register("stream_read_bytes", "Bytes that streams read from storage", self.bytes_read.clone());
        to.register("cache_hit_bytes", "Bytes that came from the cache", self.cache_hit_bytes.clone());
        to.register("cache_miss_bytes", "Bytes that were not in the cache", self.cache_miss_bytes.clone());
        to.register("stream_wait_seconds", "Seconds that streams waited, by cause", self.waits.clone());
        to.register("stream_reads", "Range reads of streams: all, retried, hedged", self.reads.clone());
        to.register("store_requests", "Requests to the object store, by result", self.store_requests.clone());
        to.register("memory_budget_bytes", "Bytes that streams may hold", self.memory_budget_bytes.clone());
        to.register("memory_held_bytes", "Bytes that streams hold now", self.memory_held_bytes.clone());
        to.register("process_resident_bytes", "Memory of the process", self.resident_bytes.clone());
        to.register("process_open_files", "Files and connections of the process", self.open_files.clone());
    }

    fn read(&self, state: &ServerState, is_ready: bool) {
        let (status, process, store) = (state.status(), Process::now(), state.lake.lake().store_requests());
        let queries = state.lake.queue_status();
        self.is_ready.set(is_ready.into());
        let set = |gauge: &Gauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.streams_running, status.streams_running);
        set(&self.streams_max, state.config.streams_max as u64);
        set(&self.queries_running, queries.running);
        set(&self.queries_waiting, queries.waiting);
        set(&self.memory_budget_bytes, status.memory_budget_bytes);
        set(&self.memory_held_bytes, status.memory_held_bytes);
        set(&self.resident_bytes, process.resident_bytes);
        set(&self.open_files, process.open_files);
        for (counter, value) in [
            (&self.streams_ended, status.streams_ended),
            (&self.queries_refused, queries.refused),
            (&self.batches, status.batches),
            (&self.rows, status.rows),
            (&self.bytes, status.bytes),
            (&self.bytes_sent, status.bytes_sent),
            (&self.bytes_read, status.bytes_read),
            (&self.cache_hit_bytes, status.cache_hit_bytes),
            (&self.cache_miss_bytes, status.cache_miss_bytes),
        ] {
            counter.inner().store(value, Relaxed);
        }
        for (cause, secs) in
            [("storage", status.storage_secs), ("decode", status.decode_secs), ("consumer", status.consumer_secs)]
        {
            self.waits.get_or_create(&Cause { cause }).inner().store(secs.to_bits(), Relaxed);
        }
        for (result, value) in [("read", status.requests), ("again", status.retries), ("twice", status.hedges)] {
            self.reads.get_or_create(&Outcome { result }).inner().store(value, Relaxed);
        }
        for (result, value) in [("answered", store.answered), ("failed", store.failed), ("held_back", store.held_back)]
        {
            self.store_requests.get_or_create(&Outcome { result }).inner().store(value, Relaxed);
        }
    }
}

/// Returns the name of a code in gRPC's specification.
fn name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
