//! `stoker stream`.

mod report;
mod stalls;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use stoker::session::{Fetched, SessionOptions};
use stoker::{Connection, Session};
use stoker_measure::Drain;
use stoker_types::{
    BadRows, BadShare, BatchSize, Batching, BucketOptions, LastBatch, LongerRows, PackOptions, PlanRequest, Query,
    ReadOptions, RunId, ShuffleMode, Slice, StreamOptions, StreamState, Topology,
};

use crate::batch_log::BatchLog;
use crate::codec::Codec;
use crate::connect::{LakeArgs, ReadArgs, parse_params};
use crate::output::output;
use crate::stream::report::report;

/// The rows per batch and rank by default.
const BATCH_SIZE: u64 = 256;

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
    /// Rows per batch and rank [default: 256; 1 with --bucket, whose batches have one bucket]
    #[arg(long, conflicts_with = "global_batch_size")]
    batch_size: Option<u64>,
    /// Rows per batch of all ranks together
    #[arg(long)]
    global_batch_size: Option<u64>,
    /// The seed of the order
    #[arg(long, default_value_t = 0, requires = "query")]
    seed: u64,
    /// The epoch, zero-based
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// The number of epochs to read one after the other; with --state, the first one is the rest of the state's epoch. If
    /// it is more than 1, the report also has the bytes and seconds without those of the first epoch
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..),
        conflicts_with = "max_batches")]
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
    /// A column with a number for each row: how often it comes in an epoch, on average [default: each row comes once]
    #[arg(long, value_name = "COLUMN", requires = "query")]
    weight: Option<String>,
    /// A column of lists of numbers, such as tokens: its rows fill sequences of --pack-length, and batches have packs
    #[arg(long, value_name = "COLUMN", requires = "pack_length")]
    pack: Option<String>,
    /// The number of tokens in a pack
    #[arg(long, value_name = "TOKENS", requires = "pack")]
    pack_length: Option<u64>,
    /// A column of lists, such as tokens, or of whole numbers: rows of similar length come together, a bucket per batch
    #[arg(long, value_name = "COLUMN", requires = "max_tokens", conflicts_with = "pack")]
    bucket: Option<String>,
    /// The number of tokens in a bucket, padding included
    #[arg(long, value_name = "TOKENS", requires = "bucket")]
    max_tokens: Option<u64>,
    /// The number of rows in a bucket [default: as many as --max-tokens allows]
    #[arg(long, value_name = "ROWS", requires = "bucket")]
    max_rows: Option<u64>,
    /// What to do with a row that has more tokens than --max-tokens
    #[arg(long, value_enum, default_value = "alone", requires = "bucket")]
    longer: Longer,
    /// What to do with a last batch that is not full [default: uneven for one rank, pad for several]
    #[arg(long, value_enum)]
    last_batch: Option<Last>,
    /// MiB of batches that are prefetched; through a server, the memory of the client
    #[arg(long, default_value_t = 1024)]
    memory_budget_mib: u64,
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
    /// Record in the run's log which positions each step has, for `stoker replay`; only rank 0 writes the log. At the end
    /// of an epoch, each rank adds the bad rows that it met to the table stoker_bad_rows
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
    /// Write a receipt for `stoker verify` to this file: the positions that this rank received in all epochs, and a
    /// checksum of their rows
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    reads: ReadArgs,
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
enum Longer {
    /// Make it a bucket of its own
    Alone,
    /// Fail, and name the row
    Error,
}

impl From<Longer> for LongerRows {
    fn from(longer: Longer) -> LongerRows {
        match longer {
            Longer::Alone => LongerRows::Alone,
            Longer::Error => LongerRows::Error,
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

impl StreamArgs {
    /// Returns how this rank reads the stream.
    fn session_options(&self, has_buckets: bool) -> anyhow::Result<SessionOptions> {
        let other = self.batch_size.filter(|size| *size != 1);
        let other = other.or(self.global_batch_size.filter(|size| *size != u64::from(self.world_size)));
        if let Some(size) = other.filter(|_| has_buckets) {
            bail!("batches of {size}, but each batch of a rank is one bucket: leave the size out");
        }
        let per_rank = self.batch_size.unwrap_or(if has_buckets { 1 } else { BATCH_SIZE });
        let size = self.global_batch_size.map_or(BatchSize::PerRank(per_rank), BatchSize::Global);
        let topology = Topology::try_new(self.rank, self.world_size)?;
        let last = self.last_batch.map_or(LastBatch::default_of(topology), LastBatch::from);
        let run_id = self.run_id.as_deref().filter(|_| self.run_log);
        Ok(SessionOptions {
            read: self.read_options()?,
            run_id: run_id.map(RunId::try_new).transpose()?,
            any_order_version: true,
            ..SessionOptions::new(topology, Batching { size, last })
        })
    }

    fn read_options(&self) -> anyhow::Result<ReadOptions> {
        Ok(ReadOptions {
            bad_rows: match self.bad_rows {
                Bad::Error => BadRows::Error,
                Bad::Substitute => BadRows::Substitute,
            },
            max_bad_share: BadShare::try_new(self.max_bad_share)?,
            verify: !self.no_verify,
            memory_budget_bytes: self.memory_budget_mib << 20,
            compression: self.compression.map(Codec::into),
            ..ReadOptions::default()
        })
    }

    /// Plans the stream of the query, or loads that of the state, and returns a session at the position where reading
    /// begins.
    async fn session(&self, connection: &Connection) -> anyhow::Result<Session> {
        let state = self.state.as_deref().map(StreamState::from_json).transpose()?;
        let handle = match (&self.query, &state) {
            (Some(query), _) => connection.plan(&self.plan(query)?).await?,
            (None, Some(state)) => connection.load_stream(state).await?,
            (None, None) => bail!("give a query, or a state with --state"),
        };
        let options = self.session_options(handle.spec().has_buckets())?;
        let session = Session::new(connection.clone(), handle, options, self.epoch)?;
        if let Some(state) = &state {
            session.load_state(state).await?;
        }
        Ok(session)
    }

    fn plan(&self, query: &str) -> anyhow::Result<PlanRequest> {
        let weight = self.weight.clone();
        let pack = self.pack.clone().zip(self.pack_length).map(|(column, length)| PackOptions {
            columns: vec![column],
            length,
            lengths: None,
            pad: 0,
        });
        let bucket = self.bucket.clone().zip(self.max_tokens).map(|(column, max_tokens)| BucketOptions {
            column,
            max_tokens,
            max_rows: self.max_rows,
            multiple: 1,
            longer: self.longer.into(),
        });
        let (seed, shuffle) = (self.seed, self.shuffle.into());
        let options = StreamOptions { seed, shuffle, weight, pack, bucket, ..StreamOptions::default() };
        let query = Query::new(query, &parse_params(&self.params));
        let run_id = self.run_id.as_deref().map(RunId::try_new).transpose()?;
        Ok(PlanRequest { run_id, ..PlanRequest::new(query, options) })
    }

    /// Returns the number of batches of all epochs together: the rest of the first one, and the others from their start.
    fn num_steps(&self, session: &Session) -> u64 {
        let options = session.options();
        let whole = Slice::new(options.topology, options.batching, 0).num_steps(session.spec().num_rows);
        let first = session.status().remaining.min(self.max_batches.unwrap_or(u64::MAX));
        first.saturating_add(whole.saturating_mul(self.epochs - 1))
    }
}

/// Reads the stream and prints the report.
pub async fn run(args: StreamArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect_with(args.reads.clone()).await?;
    let planning = Instant::now();
    let session = args.session(&connection).await?;
    let planned = planning.elapsed();
    let steps = args.num_steps(&session);
    let mut log = args.log.as_deref().map(BatchLog::create).transpose()?;
    let bar = progress(steps, args.json);
    let (epochs, max_batches) = (args.epochs, args.max_batches);
    let drain = Drain { session: &session, epochs, max_batches };
    let taken = &mut |fetched: &Fetched| {
        if let Some(log) = &mut log {
            log.add(&fetched.batch)?;
        }
        if !bar.is_hidden() {
            bar.set_message(format!("waiting: {}", stalls::line(&session.stats().stalls)));
        }
        bar.inc(1);
        Ok(())
    };
    let drained = drain.run(taken).await?;
    bar.finish_and_clear();
    log.map(BatchLog::finish).transpose()?;
    connection.settle().await;
    if let Some(path) = &args.receipt {
        std::fs::write(path, format!("{}\n", session.receipt().to_json()))
            .with_context(|| format!("cannot write the receipt {}", path.display()))?;
    }
    let mut report = report(&drained, &session, epochs, steps, planned);
    let state = &drained.state;
    let mut out = output();
    if args.json {
        report["state"] = serde_json::from_str(&state.to_json())?;
        writeln!(out, "{report}")?;
        return Ok(());
    }
    report["stalls"] = stalls::line(&drained.stats.stalls).into();
    for (key, value) in report.as_object().into_iter().flatten() {
        writeln!(out, "{key:<24} {value}")?;
    }
    writeln!(out, "{:<24} {}", "state", state.to_json())?;
    Ok(())
}

fn progress(steps: u64, hidden: bool) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if hidden || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    let style = "{bar:30} {pos}/{len} batches  {per_sec}  {eta} left  {msg}";
    bar.with_style(ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()))
}
