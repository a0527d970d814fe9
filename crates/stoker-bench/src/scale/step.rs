//! The steps of `stoker bench scale`, each of which runs in a process of its own.
//!
//! The table has one bit per row, but stands for a table of wider rows: its blocks and windows hold as many rows as
//! those of rows of 2,048 bytes would. An order of many short blocks takes more planning than one of a few long blocks,
//! which a table of bits would get by default.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use serde::{Deserialize, Serialize};
use stoker_lake::{LakeStore, StorageOptions};
use stoker_measure::{bytes_read, process_use, reset_peak, resident_bytes};
use stoker_order::EpochOrder;
use stoker_sql::{Engine, EngineOptions, RowSet};
use stoker_stream::StreamPlan;
use stoker_types::{
    BatchSize, Batching, DELAY_LINE_BYTES, Digest, LastBatch, OrderOptions, ReadOptions, Slice, StreamOptions, Topology,
};

/// Bytes of each row that the table stands for.
const ROW_BYTES: u64 = 2_048;

/// Bytes of each row of the table, as streams count them.
const STORED_ROW_BYTES: u64 = 1;

/// The number of rows of a global batch.
pub const BATCH_ROWS: u64 = 1_024;

/// The number of repetitions; the median is reported.
pub const REPEAT: u64 = 5;

/// A step of `stoker bench scale`.
#[derive(Debug, Args)]
pub struct StepArgs {
    /// The folder with the table
    #[arg(long)]
    dir: String,
    #[command(subcommand)]
    step: Step,
}

#[derive(Debug, Subcommand)]
enum Step {
    /// Make the row set of a query, and a stream over the row set
    Make {
        /// The query
        query: String,
    },
    /// Load a row set, then plan epochs over it
    Plan {
        /// The query
        query: String,
        /// The digest of the query's row set
        row_set: Digest,
    },
    /// Load a stream, then open it
    Open {
        /// The id of the stream
        stream: Digest,
    },
}

/// The costs of making a row set.
#[derive(Debug, Serialize, Deserialize)]
pub struct Made {
    pub stream: Digest,
    pub row_set: Digest,
    pub rows: u64,
    pub secs: f64,
    /// The peak memory of the process in bytes.
    pub peak_bytes: u64,
}

/// The costs of planning, with the row set loaded.
#[derive(Debug, Serialize, Deserialize)]
pub struct Planned {
    /// Bytes of the row set, as the row set counts them.
    pub bytes_in_memory: u64,
    /// Bytes by which the process grew when it loaded the row set.
    pub bytes_resident: u64,
    /// Resident bytes of the process after it loaded the row set.
    pub loaded_bytes: u64,
    pub places: [PlannedAt; 2],
}

/// The costs of planning an epoch: its order, and the addresses of one global batch.
#[derive(Debug, Serialize, Deserialize)]
pub struct PlannedAt {
    pub position: u64,
    pub secs: f64,
    /// Bytes by which the process grew at most; `None` if the kernel does not report them.
    pub bytes: Option<u64>,
}

/// The costs of opening streams, with the row set loaded.
#[derive(Debug, Serialize, Deserialize)]
pub struct Opened {
    pub load_secs: f64,
    /// Resident bytes of the process after it loaded the stream.
    pub loaded_bytes: u64,
    /// Bytes by which the process grew at most; `None` if the kernel does not report them.
    pub bytes: Option<u64>,
    pub places: [OpenedAt; 2],
}

/// The costs of opening a stream at a position.
#[derive(Debug, Serialize, Deserialize)]
pub struct OpenedAt {
    pub position: u64,
    /// Seconds from opening the stream to the first batch.
    pub first_batch_secs: f64,
    /// Bytes read for the first batch alone.
    pub bytes_read: u64,
}

/// Measures one step, and prints the figures as JSON.
pub async fn run(args: &StepArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let lake = LakeStore::open(&args.dir, &StorageOptions::default()).await?;
    let engine = Engine::new(lake, EngineOptions::default());
    let report = match &args.step {
        Step::Make { query } => serde_json::to_value(make(&engine, query).await?)?,
        Step::Plan { query, row_set } => serde_json::to_value(plan(&engine, query, *row_set).await?)?,
        Step::Open { stream } => serde_json::to_value(open(&engine, *stream).await?)?,
    };
    writeln!(out, "{report}")?;
    Ok(())
}

async fn make(engine: &Engine, query: &str) -> anyhow::Result<Made> {
    let started = Instant::now();
    let plan = StreamPlan::create(engine, query, &[], &options()).await?;
    let secs = started.elapsed().as_secs_f64();
    let source = plan.spec().sources.first().with_context(|| format!("the stream over {query} has no source"))?;
    let peak_bytes = process_use(std::process::id()).peak_bytes;
    Ok(Made { stream: plan.stream_id(), row_set: source.row_set, rows: plan.num_rows(), secs, peak_bytes })
}

async fn plan(engine: &Engine, query: &str, digest: Digest) -> anyhow::Result<Planned> {
    let query = engine.sample(query, &[]).await?;
    let before = resident_bytes();
    let row_set = engine.load_row_set(&query, digest).await?;
    let loaded_bytes = resident_bytes();
    let order = options().order(row_set.num_rows(), STORED_ROW_BYTES);
    let [start, deep] = positions(row_set.num_rows());
    Ok(Planned {
        bytes_in_memory: row_set.bytes_in_memory() as u64,
        bytes_resident: loaded_bytes.saturating_sub(before),
        loaded_bytes,
        places: [plan_at(&row_set, &order, start).await?, plan_at(&row_set, &order, deep).await?],
    })
}

/// Plans several epochs, each from `position` on.
async fn plan_at(row_set: &RowSet, options: &OrderOptions, position: u64) -> anyhow::Result<PlannedAt> {
    let num_rows = row_set.num_rows();
    let end = position.saturating_add(BATCH_ROWS).min(num_rows);
    let growth = Growth::start();
    let mut secs = Vec::new();
    for epoch in 0..REPEAT {
        let started = Instant::now();
        let mut ordinals = Vec::new();
        EpochOrder::new(num_rows, options, 0, epoch).ordinals(position..end, &mut ordinals);
        ordinals.sort_unstable();
        let found = row_set.resolve(&ordinals).await?.addrs.first().map_or(0, Vec::len) as u64;
        secs.push(started.elapsed().as_secs_f64());
        ensure!(found == end - position, "positions {position} to {end} of {num_rows} have {found} addresses");
    }
    Ok(PlannedAt { position, secs: median(secs), bytes: growth.map(Growth::finish) })
}

async fn open(engine: &Engine, stream: Digest) -> anyhow::Result<Opened> {
    let started = Instant::now();
    let plan = StreamPlan::load_by_id(engine, stream).await?;
    let load_secs = started.elapsed().as_secs_f64();
    let loaded_bytes = resident_bytes();
    // This memory budget suffices for one batch only. Nothing is prefetched, so that seconds and bytes are those of the
    // first batch.
    let alone = ReadOptions { memory_budget_bytes: 1, ..ReadOptions::default() };
    let places = first_batches(&plan, &alone).await?;
    let growth = Growth::start();
    first_batches(&plan, &ReadOptions::default()).await?;
    Ok(Opened { load_secs, loaded_bytes, bytes: growth.map(Growth::finish), places })
}

/// Opens a stream several times, alternately at the start of the epoch and deep inside it. Returns the medians.
async fn first_batches(plan: &StreamPlan, options: &ReadOptions) -> anyhow::Result<[OpenedAt; 2]> {
    let positions = positions(plan.num_rows());
    let (mut secs, mut bytes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..REPEAT {
        for (index, position) in positions.into_iter().enumerate() {
            let before = bytes_read();
            let started = Instant::now();
            first_batch(plan, options, position).await?;
            secs[index].push(started.elapsed().as_secs_f64());
            bytes[index].push(bytes_read().saturating_sub(before) as f64);
        }
    }
    let (secs, bytes) = (secs.map(median), bytes.map(median));
    #[expect(clippy::cast_possible_truncation, reason = "casts of numbers with fractions saturate")]
    let opened_at = |index: usize| OpenedAt {
        position: positions[index],
        first_batch_secs: secs[index],
        bytes_read: bytes[index] as u64,
    };
    Ok([opened_at(0), opened_at(1)])
}

/// Opens a stream at a position, as a resume does, and reads its first batch.
async fn first_batch(plan: &StreamPlan, options: &ReadOptions, position: u64) -> anyhow::Result<()> {
    let batching = Batching { size: BatchSize::PerRank(BATCH_ROWS), last: LastBatch::Uneven };
    let slice = Slice { origin: position, ..Slice::new(Topology::SINGLE, batching, 0) };
    let batch = plan.open(&slice, options)?.next().await?;
    let found = batch.map_or(0, |batch| batch.num_valid as u64);
    let expected = BATCH_ROWS.min(plan.num_rows() - position);
    ensure!(found == expected, "the first batch at position {position} has {found} rows, not {expected}");
    Ok(())
}

/// Returns options for blocks and windows with as many rows as those of the wider rows have by default.
fn options() -> StreamOptions {
    let default = StreamOptions::default();
    let stored = |bytes: u64| bytes / ROW_BYTES * STORED_ROW_BYTES;
    let (held, block) = (stored(DELAY_LINE_BYTES), stored(default.block_bytes));
    StreamOptions { shuffle_window_bytes: Some(held), block_bytes: block, ..default }
}

/// Returns the start of an epoch, and a position deep inside it.
fn positions(num_rows: u64) -> [u64; 2] {
    [0, num_rows / 4 * 3]
}

/// Measures by how much the memory of this process grows at most.
struct Growth {
    before: u64,
}

impl Growth {
    /// Begins a measurement; returns `None` if the kernel does not support it.
    fn start() -> Option<Self> {
        reset_peak().then(|| Self { before: resident_bytes() })
    }

    /// Returns the bytes by which the peak exceeds the memory at the start.
    fn finish(self) -> u64 {
        process_use(std::process::id()).peak_bytes.saturating_sub(self.before)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
