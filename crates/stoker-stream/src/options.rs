//! Options of streams. Sizes are in bytes where people think in bytes.

use std::time::Duration;

use stoker_chunks::{ChunkScan, ChunkScanOptions, RetryPolicy};
use stoker_types::{MixtureStop, ORDER_VERSION, OrderOptions, ParamValue, RunId, ShuffleMode, slots_for};

use crate::source::SourcePlan;
use crate::{BadShare, MemoryBudget, Result};

/// A sample query as it was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// The text of the query.
    pub sql: String,
    /// The positional parameters.
    pub params: Vec<ParamValue>,
}

impl Query {
    /// Makes a query from its text and parameters.
    pub fn new(sql: impl Into<String>, params: &[ParamValue]) -> Self {
        Self { sql: sql.into(), params: params.to_vec() }
    }
}

/// How several queries are mixed into one stream.
#[derive(Clone, Debug, PartialEq)]
pub struct MixOptions {
    /// The weight of each query. Weights need not add up to one.
    pub weights: Vec<f64>,
    /// What ends an epoch.
    pub stop: MixtureStop,
    /// The number of rows in an epoch, for [`MixtureStop::Rows`].
    pub epoch_rows: u64,
}

/// A request to plan a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanRequest {
    /// The query of the stream, or the queries of its mixture.
    pub queries: Vec<Query>,
    /// How several queries are mixed into one stream, or `None` for one query.
    pub mix: Option<MixOptions>,
    /// The options that determine the order.
    pub options: StreamOptions,
    /// The run, if there is one. All its processes get the same stream, whichever of them plans it first.
    pub run_id: Option<RunId>,
}

impl PlanRequest {
    /// Makes a request for a stream of one query.
    pub fn new(query: Query, options: StreamOptions) -> Self {
        Self { queries: vec![query], mix: None, options, run_id: None }
    }

    /// Checks everything that can be checked without the lake.
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

/// The options that determine the order of a stream, together with its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOptions {
    /// The seed. The default is 0.
    pub seed: u64,
    /// The mode of shuffling. The default is [`ShuffleMode::Block`].
    pub shuffle: ShuffleMode,
    /// The size of the windows of all lanes together, for any number of ranks, in bytes. The default is 512 MiB.
    pub shuffle_window_bytes: u64,
    /// The size of a block of neighbouring rows, in bytes. The default is 512 KiB.
    pub block_bytes: u64,
    /// The number of lanes. The default is 48. If the number of ranks divides it, the cluster reads each byte once per
    /// epoch.
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

/// The number of blocks that the windows of all lanes should hold together. More blocks do not mix rows noticeably
/// better.
const BLOCKS_PER_WINDOW: u64 = 1_024;

impl StreamOptions {
    /// Returns the order options of each source. The windows of a mixture divide the bytes such that all windows are
    /// used up at the same time.
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

    /// Converts sizes in bytes to numbers of rows. This happens once, because the result is frozen in the stream's
    /// specification.
    ///
    /// Row sets that are smaller than the windows get smaller blocks, so that their rows mix equally well.
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

/// What happens to a row that is bad every time it is read: a row whose bytes do not have their checksum or, if the
/// consumer decodes images, a row with an image that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadRows {
    /// The stream fails with an error that names the row.
    #[default]
    Error,
    /// The next good row of the same window replaces the bad row, the same one on every rank, and the batch lists the
    /// replacement.
    Substitute,
}

impl BadRows {
    /// Returns the policy's name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            BadRows::Error => "error",
            BadRows::Substitute => "substitute",
        }
    }

    /// Returns the policy with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [BadRows::Error, BadRows::Substitute].into_iter().find(|bad_rows| bad_rows.as_str() == name)
    }
}

/// The codec of Arrow's IPC format that compresses the bodies of record batches between a server and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// LZ4 frames, which take little processor time.
    Lz4,
    /// Zstandard, which makes messages smaller than LZ4 for more processor time.
    Zstd,
}

impl Compression {
    /// Returns the codec's name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Compression::Lz4 => "lz4",
            Compression::Zstd => "zstd",
        }
    }

    /// Returns the codec with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Compression::Lz4, Compression::Zstd].into_iter().find(|compression| compression.as_str() == name)
    }
}

/// How a stream is read. These options do not affect the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The policy for bad rows. The default is [`BadRows::Error`].
    pub bad_rows: BadRows,
    /// The largest share of the rows of a window that may be bad and replaced. The default is one in a hundred; 16 rows
    /// are always allowed.
    pub max_bad_share: BadShare,
    /// Whether the checksums of heavy columns are verified. The default is `true`.
    pub verify: bool,
    /// The retry budget: for how long a read is retried after transient faults without progress, and for how long a
    /// client continues without a batch from any server. The default is the time limit of the connection's calls, or
    /// 120 s.
    pub retry_budget: Option<Duration>,
    /// The largest size of all batches that are being filled or wait for the consumer, in bytes. The default is 1 GiB.
    /// The stream may get less if it shares a [`MemoryBudget`](crate::MemoryBudget) with others.
    pub memory_budget_bytes: u64,
    /// The number of threads that read from local disks. The default is the number of cores, but at most 16. The
    /// runtime's own threads read what is in the page cache.
    pub io_threads: usize,
    /// Whether the stream only prefetches until it is told to begin
    /// ([`BatchStream::begin`](crate::BatchStream::begin)). It then reads its first batch. It reads more only within a
    /// sixteenth of its budget, or, once all other open streams have read everything, within the memory that they
    /// leave; windows that are read as a whole must fit there as a whole. It reads nothing if its first batch is large
    /// and would take a request for each row.
    pub ahead: bool,
    /// Whether a prefetching stream reads its first batch only, however much memory is free. A client of a server
    /// requests the other batches in another call.
    pub first_batch_only: bool,
    /// The codec that compresses the messages of a server. The default is none. A stream in this process has no
    /// messages and ignores it.
    pub compression: Option<Compression>,
}

/// A prefetching stream may hold its memory budget divided by this number.
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
    /// Returns the number of bytes that the stream may hold while it prefetches beside other streams.
    pub(crate) fn early_budget_bytes(&self) -> u64 {
        (self.memory_budget_bytes / AHEAD_DIVISOR).max(1)
    }

    /// Returns a chunk scan with these options, which uses the memory and the request limit of `budget`.
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

    /// Returns the policy for retries after transient faults.
    pub(crate) fn retry(&self) -> RetryPolicy {
        let policy = RetryPolicy::default();
        RetryPolicy { budget: self.retry_budget.unwrap_or(policy.budget), ..policy }
    }
}
