//! `stoker bench scale`: measures the costs of a table of 10^9 rows, without extrapolation.
//!
//! ```text
//! table `scale`, one bit per row ──make──► row set of all rows, of half of them ──plan──► first rows of an epoch
//!                                                                               ──open──► first batch of a stream
//! ```
//!
//! Each step runs in a process of its own (`stoker bench scale-step`), so that its memory can be measured alone. Plans
//! and streams are measured from the start of an epoch and from a position deep inside it.

mod bars;
mod report;
mod step;
mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde::de::DeserializeOwned;
use stoker_lake::LakeStore;

use crate::scale::report::{QueryReport, Report};
use crate::scale::step::{Made, Opened, Planned};

pub use step::{StepArgs, run as run_step};

/// The default number of rows, for which the bars are defined.
const DEFAULT_ROWS: u64 = 1_000_000_000;

/// The queries: all rows, and a random half of them.
const QUERIES: [&str; 2] = ["SELECT keep FROM scale", "SELECT keep FROM scale WHERE keep"];

/// The folder of row sets under `_stoker` in the lake.
const ROW_SETS: &str = "rowsets";

/// The interval at which the spinner on a terminal moves.
const TICK: Duration = Duration::from_millis(200);

/// Measure the costs of a table of many rows: its row sets, planning an epoch, opening a stream deep inside an epoch.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Rows of the table, which takes one bit per row
    #[arg(long, default_value_t = DEFAULT_ROWS, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// The folder in which the table is written and kept, which must hold nothing else; a temporary folder by default
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Writes the table, measures, and prints the report. Fails if a bar for memory is missed.
pub async fn run(args: &ScaleArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let temporary = std::env::temp_dir().join(format!("stoker-bench-scale-{}", std::process::id()));
    let measured = measure(args.rows, args.dir.as_deref().unwrap_or(&temporary)).await;
    if args.dir.is_none() {
        std::fs::remove_dir_all(&temporary).ok();
    }
    let report = measured?;
    match args.json {
        true => writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?,
        false => report.print(out)?,
    }
    let missed: Vec<String> = report.bars.iter().filter(|bar| bar.fails()).map(ToString::to_string).collect();
    ensure!(missed.is_empty(), "over the bar: {}", missed.join("; "));
    Ok(())
}

async fn measure(rows: u64, dir: &Path) -> anyhow::Result<Report> {
    let uri = dir.to_str().context("the folder's name is not UTF-8")?;
    let table = table::make(uri, rows).await?;
    let mut queries = Vec::new();
    for query in QUERIES {
        queries.push(measure_query(&table.lake, query).await?);
    }
    Ok(Report::new(&table, queries))
}

async fn measure_query(lake: &LakeStore, query: &str) -> anyhow::Result<QueryReport> {
    // Row sets are named by their content: an existing row set would not be written again, and its bytes would not be
    // counted.
    for path in lake.objects().list(ROW_SETS).await? {
        lake.objects().delete(&path).await?;
    }
    let made: Made = child(lake, &["make", query], &format!("making the row set of {query}"))?;
    let rate = table::rate(made.rows, made.secs);
    eprintln!("{} rows in {:.1} s ({rate} rows/s)", HumanCount(made.rows), made.secs);
    let bytes_on_disk = row_set_bytes(lake).await?;
    let (row_set, stream) = (made.row_set.to_string(), made.stream.to_string());
    let planned: Planned = child(lake, &["plan", query, &row_set], "loading it and planning epochs")?;
    let opened: Opened = child(lake, &["open", &stream], "loading it and opening streams")?;
    Ok(QueryReport { query: query.to_string(), made, bytes_on_disk, planned, opened })
}

/// Returns the bytes of all objects of row sets.
async fn row_set_bytes(lake: &LakeStore) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for path in lake.objects().list(ROW_SETS).await? {
        let file = Path::new(lake.uri()).join("_stoker").join(path);
        bytes += std::fs::metadata(&file).with_context(|| format!("cannot measure {}", file.display()))?.len();
    }
    Ok(bytes)
}

/// Runs a step in a process of its own, and returns its report.
fn child<T: DeserializeOwned>(lake: &LakeStore, step: &[&str], doing: &str) -> anyhow::Result<T> {
    eprintln!("{doing}");
    let waiting = ProgressBar::new_spinner();
    waiting.set_style(ProgressStyle::with_template("{spinner} {elapsed}")?);
    waiting.enable_steady_tick(TICK);
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "scale-step", "--dir", lake.uri()])
        .args(step)
        .env_remove("STOKER_LAKE")
        .env_remove("STOKER_SERVER")
        // By default, the allocator keeps freed memory for a second, and new memory would come from there unnoticed.
        .env("MIMALLOC_PURGE_DELAY", "0")
        .output()?;
    waiting.finish_and_clear();
    let said = String::from_utf8_lossy(&output.stderr);
    // Warnings are printed before the error.
    let error = said.lines().next_back().unwrap_or_default();
    ensure!(output.status.success(), "{doing}: `stoker bench scale-step` failed: {error}");
    serde_json::from_slice(&output.stdout).with_context(|| format!("{doing}: cannot read what the process measured"))
}
