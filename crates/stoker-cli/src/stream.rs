//! `stoker stream`.

mod drain;
mod stalls;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stoker_flight::{Connection, StreamHandle};
use stoker_types::{
    BadRows, BadShare, BatchLogEntry, BatchSize, Batching, LastBatch, PlanRequest, Query, ReadOptions, RunEntry,
    RunEvent, RunId, ShuffleMode, Slice, StreamOptions, StreamState, Topology,
};

use crate::batch_log::BatchLog;
use crate::codec::Codec;
use crate::connect::{LakeArgs, ReadArgs, parse_params};
use crate::output::output;
pub use crate::stream::drain::{Drain, Drained};

/// Read one rank's share of a stream as a training job would, and report the rates.
#[derive(Debug, Args)]
pub struct StreamArgs {
    /// The sample query; $1, $2, …, or ? from left to right, are the parameters of --param. With --state the query may
    /// be left out; the stream then has the query, snapshots and order that the state pinned
    #[arg(required_unless_present = "state")]
    query: Option<String>,
    /// A parameter as JSON, in order
    #[arg(long = "param", short = 'p', value_name = "JSON", requires = "query")]
    params: Vec<String>,
    /// Rows per batch and rank
    #[arg(long, default_value_t = 256, conflicts_with = "global_batch_size")]
    batch_size: u64,
    /// Rows per batch of all ranks together
    #[arg(long)]
    global_batch_size: Option<u64>,
    /// The seed of the order
    #[arg(long, default_value_t = 0, requires = "query")]
    seed: u64,
    /// The epoch, zero-based
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// The number of epochs to read one after the other; if it is more than 1, the report also has the bytes and
    /// seconds without those of the first epoch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with_all = ["max_batches", "state", "run_log", "receipt"])]
    epochs: u64,
    /// The rank that this process reads for
    #[arg(long, default_value_t = 0)]
    rank: u32,
    /// The number of ranks
    #[arg(long, default_value_t = 1)]
    world_size: u32,
    /// How rows are shuffled
    #[arg(long, value_enum, default_value = "block", requires = "query")]
    shuffle: Shuffle,
    /// What to do with a last batch that is not full [default: uneven for one rank, pad for several]
    #[arg(long, value_enum)]
    last_batch: Option<Last>,
    /// MiB of batches that are prefetched; through a server, the memory of the client
    #[arg(long, default_value_t = 1024)]
    memory_budget_mib: u64,
    #[command(flatten)]
    reads: ReadArgs,
    /// Stop after this number of batches
    #[arg(long)]
    max_batches: Option<u64>,
    /// Resume at a state, given as JSON. If a query is given too, it must be the query of the state, and its tables
    /// must be unchanged
    #[arg(long)]
    state: Option<String>,
    /// The name of the run: all processes that give the same name stream the same snapshots, which the first of them
    /// pins
    #[arg(long, value_name = "NAME", requires = "query")]
    run_id: Option<String>,
    /// Record in the run's log which positions each step has, for `stoker replay`; only rank 0 writes the log
    #[arg(long, requires = "run_id")]
    run_log: bool,
    /// What to do with rows whose bytes do not match their checksum
    #[arg(long, value_enum, default_value = "error")]
    bad_rows: Bad,
    /// With `--bad-rows substitute`: the share of a window's rows that may be bad, from 0 to 1; 16 rows may be bad in
    /// any case
    #[arg(long, value_name = "SHARE", default_value_t = BadShare::default().share())]
    max_bad_share: f64,
    /// Do not verify checksums
    #[arg(long)]
    no_verify: bool,
    /// The codec that compresses batches on their way from a server, for slow networks [default: none]
    #[arg(long, value_enum)]
    compression: Option<Codec>,
    /// Write a line of JSON for each batch to this file: step, position, row addresses, SHA-256 of the batch
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Write a receipt for `stoker verify` to this file: the positions that this rank received, and a checksum of their
    /// rows
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// How rows are shuffled.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shuffle {
    /// Blocks in random order, with the rows of many blocks mixed in each window
    Block,
    /// A uniform permutation, which needs random reads
    Full,
    /// No shuffling
    None,
}

impl From<Shuffle> for ShuffleMode {
    fn from(shuffle: Shuffle) -> ShuffleMode {
        match shuffle {
            Shuffle::Block => ShuffleMode::Block,
            Shuffle::Full => ShuffleMode::Full,
            Shuffle::None => ShuffleMode::Sequential,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Last {
    Pad,
    Drop,
    Uneven,
}

impl From<Last> for LastBatch {
    fn from(last: Last) -> LastBatch {
        match last {
            Last::Pad => LastBatch::Pad,
            Last::Drop => LastBatch::Drop,
            Last::Uneven => LastBatch::Uneven,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Bad {
    /// Fail, and name the bad row
    Error,
    /// Replace the bad row by the next good row of the same window
    Substitute,
}

/// Reads the stream and prints the report.
pub async fn run(args: StreamArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect_with(args.reads.clone()).await?;
    let planning = Instant::now();
    let run_id = args.run_id.as_deref().map(RunId::try_new).transpose()?;
    let state = args.state.as_deref().map(StreamState::from_json).transpose()?;
    let handle = find(&args, &connection, run_id.clone(), state.as_ref()).await?;
    let planned = planning.elapsed();
    let size = args.global_batch_size.map_or(BatchSize::PerRank(args.batch_size), BatchSize::Global);
    let topology = Topology::try_new(args.rank, args.world_size)?;
    let last = args.last_batch.map_or(LastBatch::default_of(topology), LastBatch::from);
    let mut slice = Slice::new(topology, Batching { size, last }, args.epoch);
    let mut sizes: Vec<BatchLogEntry> = Vec::new();
    let mut first_step = 0;
    if let Some(state) = state {
        (slice.epoch, slice.origin, first_step, sizes) = (state.epoch, state.position, state.step, state.log.clone());
        if state.logged_epoch() != state.epoch {
            sizes.clear();
        }
        if slice.origin > 0 && slice.num_steps(handle.num_rows()) == 0 {
            // The epoch of the state has ended, so that the stream begins with the next one.
            (slice.epoch, slice.origin, sizes) = (slice.epoch + 1, 0, Vec::new());
        }
    }
    sizes.retain(|entry| entry.position < slice.origin);
    if sizes.last().is_none_or(|entry| entry.global_batch != slice.global_batch()) {
        let (position, global_batch) = (slice.origin, slice.global_batch());
        sizes.push(BatchLogEntry { step: first_step, position, global_batch });
    }
    if let Some(run_id) = run_id.filter(|_| args.run_log && args.rank == 0) {
        let entry = RunEntry {
            run_id,
            event: if slice.origin == 0 { RunEvent::Epoch } else { RunEvent::Resume },
            stream_id: handle.spec().stream_id(),
            step: first_step,
            epoch: slice.epoch,
            position: slice.origin,
            global_batch: slice.global_batch(),
            last_batch: last,
            world_size: args.world_size,
            time_micros: 0,
        };
        connection.log_run(&entry).await?;
    }
    let read = ReadOptions {
        bad_rows: match args.bad_rows {
            Bad::Error => BadRows::Error,
            Bad::Substitute => BadRows::Substitute,
        },
        max_bad_share: BadShare::try_new(args.max_bad_share)?,
        verify: !args.no_verify,
        memory_budget_bytes: args.memory_budget_mib << 20,
        compression: args.compression.map(Codec::into),
        ..ReadOptions::default()
    };
    let steps = slice.num_steps(handle.num_rows()).min(args.max_batches.unwrap_or(u64::MAX));
    let log = args.log.as_deref().map(BatchLog::create).transpose()?;
    let bar = progress(steps.saturating_mul(args.epochs), args.json);
    let drain = Drain { handle: &handle, slice, read, epochs: args.epochs, steps, first_step, sizes, log, bar };
    let drained = drain.run().await?;
    connection.settle().await;
    if let (Some(path), Some(receipt)) = (&args.receipt, &drained.receipt) {
        std::fs::write(path, format!("{}\n", receipt.to_json()))
            .with_context(|| format!("cannot write the receipt {}", path.display()))?;
    }
    let mut report = drained.report(&handle, args.epochs, steps, planned);
    let state = &drained.state;
    let mut out = output();
    if args.json {
        report["state"] = serde_json::from_str(&state.to_json())?;
        writeln!(out, "{report}")?;
        return Ok(());
    }
    report["stalls"] = drained.stalls().into();
    for (key, value) in report.as_object().into_iter().flatten() {
        writeln!(out, "{key:<24} {value}")?;
    }
    writeln!(out, "{:<24} {}", "state", state.to_json())?;
    Ok(())
}

/// Plans the stream of the query, or loads that of the state.
async fn find(
    args: &StreamArgs,
    connection: &Connection,
    run_id: Option<RunId>,
    state: Option<&StreamState>,
) -> anyhow::Result<StreamHandle> {
    let (query, state) = match (&args.query, state) {
        (Some(query), state) => (query, state),
        (None, Some(state)) => return Ok(connection.load_stream(state).await?),
        (None, None) => bail!("give a query, or a state with --state"),
    };
    let options = StreamOptions { seed: args.seed, shuffle: args.shuffle.into(), ..StreamOptions::default() };
    let query = Query::new(query, &parse_params(&args.params));
    let request = PlanRequest { run_id, ..PlanRequest::new(query, options) };
    let handle = connection.plan(&request).await?;
    let resumed = match state {
        Some(state) => handle.resumed(connection, state).await?,
        None => None,
    };
    Ok(resumed.unwrap_or(handle))
}

fn progress(steps: u64, hidden: bool) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if hidden || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = "{bar:30} {pos}/{len} batches  {per_sec}  {eta} left  {msg}";
    bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
