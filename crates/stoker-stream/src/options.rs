//! Options of streams, with bytes where people think in bytes.

use std::time::Duration;

use stoker_chunks::{ChunkScan, ChunkScanOptions, RetryPolicy};
use stoker_types::{MixtureStop, ORDER_VERSION, OrderOptions, ParamValue, RunId, ShuffleMode, slots_for};

use crate::source::SourcePlan;
use crate::{BadShare, MemoryBudget, Result};

/// A sample query as it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The text.
    pub sql: String,
    /// Its positional parameters.
    pub params: Vec<ParamValue>,
}

impl Query {
    /// A query with parameters.
    pub fn new(sql: impl Into<String>, params: &[ParamValue]) -> Self {
        Self { sql: sql.into(), params: params.to_vec() }
    }
}

/// How several queries become one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOptions {
    /// The share of each query; they need not add up to one.
    pub weights: Vec<f64>,
    /// What ends an epoch.
    pub stop: MixtureStop,
    /// Rows of an epoch, for [`MixtureStop::Rows`].
    pub epoch_rows: u64,
}

/// What a stream is planned from.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// One query, or those of a mixture.
    pub queries: Vec<Query>,
    /// How several queries become one stream.
    pub mix: Option<MixOptions>,
    /// What determines the order.
    pub options: StreamOptions,
    /// The run whose processes all get the same stream, whichever of them asks first.
    pub run_id: Option<RunId>,
}

impl PlanRequest {
    /// A stream over one query.
    pub fn new(query: Query, options: StreamOptions) -> Self {
        Self { queries: vec![query], mix: None, options, run_id: None }
    }

    /// Checks what can be checked without the lake.
    ///
    /// # Errors
    /// `InvalidValue` naming the option.
    pub fn validate(&self) -> Result<()> {
        let fail = |what, reason: String| Err(stoker_types::Error::InvalidValue { what, reason }.into());
        let StreamOptions { shuffle_window_bytes, block_bytes, num_lanes, .. } = &self.options;
        let numbers = [
            ("shuffle_window_bytes", *shuffle_window_bytes),
            ("block_bytes", *block_bytes),
            ("num_lanes", u64::from(*num_lanes)),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, value)| *value == 0) {
            return fail(what, "it is 0; it must be at least 1".into());
        }
        match &self.mix {
            None if self.queries.len() == 1 => Ok(()),
            None => fail("queries", format!("{} queries need weights to become one stream", self.queries.len())),
            Some(mix) => {
                let slots = slots_for(&mix.weights)?;
                if slots.len() != self.queries.len() {
                    return fail("weights", format!("{} weights for {} queries", slots.len(), self.queries.len()));
                }
                match mix.stop == MixtureStop::Rows && mix.epoch_rows == 0 {
                    true => fail("epoch_rows", "an epoch needs at least one row".into()),
                    false => Ok(()),
                }
            }
        }
    }
}

/// What determines the order of a stream, besides its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The seed; 0 by default.
    pub seed: u64,
    /// The way of shuffling; blocks by default.
    pub shuffle: ShuffleMode,
    /// Bytes of the windows of all lanes together, whatever the number of ranks; 512 MiB by default.
    pub shuffle_window_bytes: u64,
    /// Bytes of a block of neighbouring rows; 512 KiB by default.
    pub block_bytes: u64,
    /// Lanes; 48 by default. Each byte is read once per epoch and cluster when the number of ranks divides it.
    pub num_lanes: u32,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            seed: 0,
            shuffle: ShuffleMode::Block,
            shuffle_window_bytes: 512 << 20,
            block_bytes: 512 << 10,
            num_lanes: 48,
        }
    }
}

/// Blocks that the windows of all lanes should hold together; more do not mix noticeably better.
const BLOCKS_PER_WINDOW: u64 = 1_024;

impl StreamOptions {
    /// The orders of the sources of a stream. The windows of a mixture share the bytes such that all are used up at the same time.
    pub(crate) fn orders(&self, sources: &[SourcePlan], weights: &[f64]) -> Vec<OrderOptions> {
        let rows = |source: &SourcePlan| source.row_set.num_rows();
        if weights.is_empty() {
            return sources.iter().map(|source| self.order(rows(source), source.row_bytes)).collect();
        }
        let demand: Vec<f64> =
            sources.iter().zip(weights).map(|(source, weight)| weight * source.row_bytes as f64).collect();
        let total: f64 = demand.iter().sum();
        let order = |(source, demand): (&SourcePlan, &f64)| {
            let bytes = (self.shuffle_window_bytes as f64 * demand / total) as u64;
            Self { shuffle_window_bytes: bytes, ..self.clone() }.order(rows(source), source.row_bytes)
        };
        sources.iter().zip(&demand).map(order).collect()
    }

    /// Converts bytes to rows, once: the result is frozen in the stream's specification.
    ///
    /// Row sets smaller than the windows get smaller blocks, so that they mix as well.
    pub fn order(&self, num_rows: u64, row_bytes: u64) -> OrderOptions {
        let row_bytes = row_bytes.max(1);
        let window = (self.shuffle_window_bytes / row_bytes / u64::from(self.num_lanes.max(1))).max(1);
        let reach = num_rows.min(window.saturating_mul(u64::from(self.num_lanes))).div_ceil(BLOCKS_PER_WINDOW);
        OrderOptions {
            version: ORDER_VERSION,
            mode: self.shuffle,
            num_lanes: self.num_lanes,
            rows_per_block: (self.block_bytes / row_bytes).min(reach).max(1),
            rows_per_window: window,
        }
    }
}

/// What happens to a row that is bad every time it is read: one whose bytes do not have their checksum or, where the consumer decodes
/// images, one with an image that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadRows {
    /// The stream fails and names the row.
    #[default]
    Error,
    /// The next good row of the same window takes its place, on every rank alike, and the batch tells.
    Substitute,
}

impl BadRows {
    /// The name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            BadRows::Error => "error",
            BadRows::Substitute => "substitute",
        }
    }

    /// The policy of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [BadRows::Error, BadRows::Substitute].into_iter().find(|bad_rows| bad_rows.as_str() == name)
    }
}

/// What compresses the bodies of record batches between a server and its client: a codec of Arrow's IPC format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 frames: quick.
    Lz4,
    /// Zstandard: smaller, for more processor time.
    Zstd,
}

impl Compression {
    /// The name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// The codec of a name.
    pub fn parse(name: &str) -> Option<Self> {
        [Compression::Lz4, Compression::Zstd].into_iter().find(|compression| compression.as_str() == name)
    }
}

/// How a stream is read; no order depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// What happens to bad rows; an error by default.
    pub bad_rows: BadRows,
    /// Of how many rows of a window others may take the place; one in a hundred, or 16 where that is more, by default.
    pub max_bad_share: BadShare,
    /// Whether the checksums of heavy columns are verified; they are by default.
    pub verify: bool,
    /// How long a read is tried again after transient faults without progress, and how long a client goes on without a batch from any
    /// server; by default as long as the connection's calls, or 120 s.
    pub retry_budget: Option<Duration>,
    /// Bytes of batches that are being filled or wait to be taken, at most; 1 GiB by default. The stream may get less where it
    /// shares a [`MemoryBudget`](crate::MemoryBudget) with others.
    pub memory_budget_bytes: u64,
    /// Threads that read from local disks; the number of cores by default, at most 16. What is in memory is read by the runtime's own.
    pub io_threads: usize,
    /// Whether the stream is opened before its time: until it is told to begin, it reads its first batch, and more only within a
    /// sixteenth of the budget, or within what other open streams leave of it once all of them have read everything; of windows that are
    /// read as a whole, only those that fit there. It reads nothing where that would take a request for each row of a large batch.
    pub ahead: bool,
    /// Whether a stream that is opened before its time reads its first batch only, whatever fits: a client of a server asks for the
    /// rest in another call.
    pub first_batch_only: bool,
    /// What compresses the messages of a server; nothing by default. A stream in this process has no messages and ignores it.
    pub compression: Option<Compression>,
}

/// A stream that is opened before its time uses so much less of its memory budget.
const AHEAD_DIVISOR: u64 = 16;

impl Default for ReadOptions {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            bad_rows: BadRows::Error,
            max_bad_share: BadShare::default(),
            verify: true,
            retry_budget: None,
            memory_budget_bytes: 1 << 30,
            io_threads: threads.clamp(1, 16),
            ahead: false,
            first_batch_only: false,
            compression: None,
        }
    }
}

impl ReadOptions {
    /// The bytes that the stream may hold ahead of its time, beside others.
    pub(crate) fn early_budget_bytes(&self) -> u64 {
        (self.memory_budget_bytes / AHEAD_DIVISOR).max(1)
    }

    /// What reads with these options, with memory and requests of a budget.
    pub(crate) fn chunk_scan(&self, budget: &MemoryBudget) -> ChunkScan {
        let options = ChunkScanOptions {
            local_threads: self.io_threads,
            local_reads: budget.local_reads(),
            verify: self.verify,
            retry: self.retry(),
            ..ChunkScanOptions::default()
        };
        ChunkScan::sharing(options, budget.pool().clone(), budget.requests())
    }

    /// How transient faults are retried.
    pub(crate) fn retry(&self) -> RetryPolicy {
        let policy = RetryPolicy::default();
        RetryPolicy { budget: self.retry_budget.unwrap_or(policy.budget), ..policy }
    }
}
