//! `stoker bench`: measures rates, and compares them with ceilings that the same run measures.
//!
//! ```text
//! local    page-cache reads        ◄──► `stoker stream` on a local lake
//! flight   C++ server and client   ◄──► `stoker serve` and its clients, over the loopback interface
//! s3       raw GETs                ◄──► `stoker stream` on an object store with a latency
//! select   raw GETs of the rows    ◄──► the same, of a scattered part of a table
//! ranks    one stream of a server  ◄──► all ranks of a job at that server, from the same store
//! decode   the JPEG decoder alone  ◄──► images as tensors, from memory and in a stream
//!          the codecs alone        ◄──► compressed tensors, from memory
//! compact  copies of the files     ◄──► compaction of a table of many appends, and streams of it
//! ```
//!
//! Each measurement of a stream of tensors runs in a process of its own, so that its processor time and peak memory are
//! not mixed with others. Each repetition measures everything once, the ceiling before the paths that it limits. After
//! them, the paths that missed their bars run once more, while `perf` samples the machine.

mod cold;
mod compact;
mod compare;
mod data;
mod decode;
mod flight;
mod frames;
mod get_ranges;
mod local;
mod object_server;
mod order;
mod profile;
mod rank_streams;
mod ranks;
mod raw;
mod report;
mod runs;
mod s3;
mod scale;
mod select;
mod service;
mod settings;
mod store;
mod svg;

use std::fmt::Debug;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use stoker::Connection;
use stoker_types::ShuffleMode;

use crate::data::{DataSet, Kind};
use crate::report::{Section, Turn};
use crate::runs::WAYS;
use crate::settings::{Settings, lake_in};

/// The values of the option `--shuffle`, which are those of `stoker stream`.
pub trait ShuffleValue: ValueEnum + Into<ShuffleMode> + Copy + Debug + Send + Sync + 'static {}

impl<S: ValueEnum + Into<ShuffleMode> + Copy + Debug + Send + Sync + 'static> ShuffleValue for S {}

/// Measure rates, and compare them with the ceilings of the same run; without a command: local, flight, s3, select,
/// ranks and decode.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs<S: ShuffleValue> {
    #[command(subcommand)]
    what: Option<What<S>>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum What<S: ShuffleValue> {
    /// Streams in process, compared with page-cache reads of the same bytes
    Local(Settings),
    /// Streams over the loopback interface, compared with Arrow's C++ server and client (through pyarrow)
    Flight(Settings),
    /// Streams from an object store with a latency, compared with raw GETs; and the time until a new process has its
    /// first batch
    S3(Settings),
    /// A stream of scattered rows of the images, selected by a predicate, from the same store
    Select(Settings),
    /// All ranks of a job at one server that reads from such a store, compared with one stream of the same server
    Ranks(ranks::RanksArgs),
    /// Decoding of JPEG files and of compressed tensors, compared with the decoder or codec alone on bytes in memory
    Decode(Settings),
    /// Compaction of a table of many appends, compared with copies of its files; streams of the compacted table, and of the
    /// older version while a compaction runs
    Compact(Settings),
    /// Streams of an earlier build and of this one, measured in turns
    Compare(compare::CompareArgs),
    /// How well orders mix rows, and what reading them costs; reads no data
    Order(order::OrderArgs<S>),
    /// The costs of a table of 10^9 rows: row sets in memory and on disk, planning an epoch, opening a stream deep
    /// inside an epoch
    Scale(scale::ScaleArgs),
    /// A step of `scale`, in a process of its own
    #[command(hide = true)]
    ScaleStep(scale::StepArgs),
    /// An S3-compatible store that serves a folder
    #[command(hide = true)]
    ObjectServer(object_server::ObjectServerArgs),
    /// The ranks of a job in one process
    #[command(hide = true)]
    RankStreams(rank_streams::RankStreamsArgs<S>),
    /// The ceiling of reading from an object store, in a process of its own
    #[command(hide = true)]
    GetRanges(get_ranges::GetRangesArgs),
}

/// The parts of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Local,
    Flight,
    S3,
    Select,
    /// With this number of ranks.
    Ranks(u32),
    Decode,
    Compact,
}

/// Runs the measurements and prints their tables to `out`, the standard output. `connect` connects to the lake or server
/// that the options of `stoker` name.
///
/// # Errors
/// A measurement that fails, and a bar of `stoker bench scale` that is missed.
pub async fn run<S: ShuffleValue>(
    args: BenchArgs<S>,
    out: &mut impl Write,
    connect: impl AsyncFnOnce() -> anyhow::Result<Connection>,
) -> anyhow::Result<()> {
    match args.what {
        Some(What::Local(settings)) => measure(&settings, &[Part::Local], out).await,
        Some(What::Flight(settings)) => measure(&settings, &[Part::Flight], out).await,
        Some(What::S3(settings)) => measure(&settings, &[Part::S3], out).await,
        Some(What::Select(settings)) => measure(&settings, &[Part::Select], out).await,
        Some(What::Ranks(args)) => measure(&args.settings, &[Part::Ranks(args.world_size)], out).await,
        Some(What::Decode(settings)) => measure(&settings, &[Part::Decode], out).await,
        Some(What::Compact(settings)) => measure(&settings, &[Part::Compact], out).await,
        Some(What::RankStreams(args)) => rank_streams::run(&args, out, &connect().await?).await,
        Some(What::Compare(args)) => compare::run(&args, out),
        Some(What::Order(args)) => order::run(&args, out),
        Some(What::Scale(args)) => scale::run(&args, out).await,
        Some(What::ScaleStep(args)) => scale::run_step(&args, out).await,
        Some(What::ObjectServer(args)) => object_server::run(&args),
        Some(What::GetRanges(args)) => get_ranges::run(&args, out),
        None => {
            let ranks = Part::Ranks(ranks::WORLD_SIZE);
            let parts = [Part::Local, Part::Flight, Part::S3, Part::Select, ranks, Part::Decode];
            measure(&args.settings, &parts, out).await
        }
    }
}

async fn measure(settings: &Settings, parts: &[Part], out: &mut impl Write) -> anyhow::Result<()> {
    let temporary = std::env::temp_dir().join(format!("stoker-bench-{}", std::process::id()));
    let measured = measure_in(settings, parts, settings.dir.as_deref().unwrap_or(&temporary)).await;
    if settings.dir.is_none() {
        std::fs::remove_dir_all(&temporary).ok();
    }
    let report = measured?;
    print(out, &report)?;
    for (path, text) in [(&settings.json, format!("{report:#}\n")), (&settings.svg, svg::draw(&report))] {
        if let Some(path) = path {
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Measures and returns the report.
async fn measure_in(settings: &Settings, parts: &[Part], dir: &Path) -> anyhow::Result<Value> {
    let lake = lake_in(dir);
    std::fs::create_dir_all(&lake).with_context(|| format!("cannot make {}", lake.display()))?;
    let table = async |kind| DataSet::make(&lake, kind, settings.num_rows(kind), settings.classes).await;
    let (mut sections, mut first_batch) = (Vec::new(), Value::Null);
    for part in parts {
        let kinds: &[Kind] = match part {
            Part::Select | Part::Compact => &[Kind::Images],
            Part::Decode => &[],
            _ => settings.kinds(),
        };
        for kind in kinds {
            let data = table(*kind).await?;
            match part {
                Part::Compact => sections.extend(compact::measure(settings, dir, &data).await?),
                part => sections.extend(of_table(settings, dir, *part, &data)?),
            }
        }
        match part {
            Part::S3 => first_batch = cold::measure(settings, dir, &table(Kind::Narrow).await?)?,
            Part::Decode => {
                sections.push(decode::measure(settings, &lake).await?);
                sections.extend(frames::measure(settings)?);
            }
            _ => {}
        }
    }
    Ok(json!({
        "machine": report::header(),
        "epochs": settings.epochs,
        "latency_ms": settings.latency_ms,
        "sections": sections.iter().map(Section::to_json).collect::<Vec<_>>(),
        "first_batch": first_batch,
    }))
}

/// Measures the sections of a part that are about one table of tensors.
fn of_table(settings: &Settings, dir: &Path, part: Part, data: &DataSet) -> anyhow::Result<Vec<Section>> {
    Ok(match part {
        Part::Local => vec![local::measure(settings, dir, data)?],
        Part::Flight => vec![flight::measure(settings, dir, data)?],
        Part::S3 => vec![s3::measure(settings, dir, data)?],
        Part::Select => vec![select::measure(settings, dir, data)?],
        Part::Ranks(world_size) => {
            let measure = |way| ranks::measure(settings, dir, data, world_size, way);
            WAYS.into_iter().map(measure).collect::<anyhow::Result<_>>()?
        }
        Part::Decode | Part::Compact => Vec::new(),
    })
}

/// Prints the tables of a report, and what their columns mean.
fn print(out: &mut impl Write, report: &Value) -> anyhow::Result<()> {
    let machine = ["version", "cpu", "cores"].map(|key| report::text(&report["machine"][key]));
    let [version, cpu, cores] = machine;
    writeln!(out, "stoker {version} on {cpu} ({cores} cores)\n")?;
    for section in report["sections"].as_array().into_iter().flatten() {
        report::print_section(out, section)?;
    }
    if !report["first_batch"].is_null() {
        cold::print(out, &report["first_batch"])?;
    }
    match report["epochs"].as_u64() {
        Some(1) | None => {
            writeln!(out, "MB/s: over the one epoch of a process, from opening the stream to its last batch")?
        }
        Some(epochs) => writeln!(
            out,
            "MB/s: from the end of the first to the end of the last of {epochs} epochs of a process; \
             the ceilings pass over the same bytes as often, and the first pass does not count"
        )?,
    }
    writeln!(
        out,
        "× ceiling: median of the ratios to the ceiling of the same repetition; bar: what it should be at least"
    )?;
    writeln!(out, "CPU and peak memory: of the whole process that gets the bytes; server CPU: of the other process")?;
    writeln!(out, "read/delivered: bytes read from files or the store over bytes delivered; GB: of bytes delivered")?;
    Ok(())
}

/// Returns the turns of a part about a table.
fn repetitions(what: &str, settings: &Settings, data: &DataSet) -> impl Iterator<Item = Turn> {
    turns(format!("{what}, {}", data.kind.table()), settings)
}

/// Counts repetitions, and prints the count to standard error. A turn for profiles follows, if they are wanted and `perf` is
/// available.
fn turns(what: String, settings: &Settings) -> impl Iterator<Item = Turn> {
    let (repeat, profiles) = (settings.repeat, !settings.no_profile && profile::is_available());
    let counted = (1..=repeat).inspect(move |repetition| eprintln!("{what}: repetition {repetition} of {repeat}"));
    counted.map(|_| Turn::Measured).chain(profiles.then_some(Turn::Profiled))
}

/// Returns the arguments with which `stoker` opens a local lake.
fn lake_args(lake: &Path) -> anyhow::Result<Vec<String>> {
    Ok(vec!["--lake".to_string(), path_text(lake)?.to_string()])
}

fn path_text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().with_context(|| format!("the name of {} is not UTF-8", path.display()))
}
