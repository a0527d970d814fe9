//! `stoker bench`: rates beside the ceiling of the same run.
//!
//! Each measurement of Stoker is a process of its own (`stoker stream`), so that processor time and peak memory are its own;
//! Flight is measured against a `stoker serve` process on the loopback interface. Repetitions interleave the measurements.

mod data;
mod order;
mod raw;
mod report;
mod runs;
mod scale;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::bench::report::Report;

/// Measure rates beside the ceiling of the same run: page-cache reads of the same bytes.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Option<What>,
    /// Rows of uint8[3,224,224], sorted by class
    #[arg(long, default_value_t = 8_192)]
    rows: u64,
    /// Classes
    #[arg(long, default_value_t = 100)]
    classes: u64,
    /// Rows per batch
    #[arg(long, default_value_t = 256)]
    batch_size: u64,
    /// Repetitions; the median is reported, with the spread
    #[arg(long, default_value_t = 5)]
    repeat: usize,
    /// Where the data is made and kept; a temporary folder by default
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Write the report as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// How well orders mix rows, and what reading them costs; reads no data
    Order(order::OrderArgs),
    /// What a table of 10^9 rows costs: row sets in memory and on disk, planning an epoch, opening a stream deep inside one
    Scale(scale::ScaleArgs),
    /// A step of `scale`, in a process of its own
    #[command(hide = true)]
    ScaleStep(scale::StepArgs),
}

/// Runs all measurements and prints the table.
pub async fn run(args: BenchArgs) -> anyhow::Result<()> {
    match &args.what {
        Some(What::Order(args)) => return order::run(args),
        Some(What::Scale(args)) => return scale::run(args).await,
        Some(What::ScaleStep(args)) => return scale::run_step(args).await,
        None => {}
    }
    let temporary = std::env::temp_dir().join(format!("stoker-bench-{}", std::process::id()));
    let dir = args.dir.clone().unwrap_or_else(|| temporary.clone());
    let measured = measure(&args, &dir).await;
    if args.dir.is_none() {
        std::fs::remove_dir_all(&temporary).ok();
    }
    let report = measured?;
    report.print()?;
    if let Some(path) = &args.json {
        std::fs::write(path, format!("{:#}\n", report.to_json()))?;
    }
    Ok(())
}

async fn measure(args: &BenchArgs, dir: &std::path::Path) -> anyhow::Result<Report> {
    let lake = dir.to_str().ok_or_else(|| anyhow::anyhow!("the folder's name is not UTF-8"))?;
    eprintln!("making {} rows in {lake}", args.rows);
    let files = data::make(lake, args.rows, args.classes).await?;
    let server = runs::Server::start(lake)?;
    let mut report = Report::new(args.rows, args.batch_size, args.repeat);
    for repetition in 0..args.repeat {
        eprintln!("repetition {} of {}", repetition + 1, args.repeat);
        report.add("page-cache reads (ceiling)", raw::read_all(&files, args.batch_size)?);
        for (name, shuffle) in [("sequential", "none"), ("block-shuffled", "block")] {
            report.add(&format!("in process, {name}"), runs::in_process(lake, shuffle, args.batch_size, &[])?);
        }
        let unverified = runs::in_process(lake, "block", args.batch_size, &["--no-verify"])?;
        report.add("in process, block-shuffled, not verified", unverified);
        for (name, shuffle) in [("sequential", "none"), ("block-shuffled", "block")] {
            report.add(&format!("Flight loopback, {name}"), server.stream(shuffle, args.batch_size)?);
        }
    }
    Ok(report)
}
