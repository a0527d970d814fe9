//! `stoker ingest`: writes folders of images, Parquet files, and files of other formats into tables.

mod args;
mod call;
mod dry_run;
mod progress;
mod report;
mod work;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::ensure;
use indicatif::{HumanBytes, HumanCount};
use stoker::refuse_view;
use stoker_columns::is_compressed_tensor;
use stoker_ingest::recognise_sources;
use stoker_lake::LakeStore;
use stoker_types::{SnapshotRef, TableName};

use crate::connect::LakeArgs;
use crate::describe::of_compression;
use crate::output::output;
pub use call::{IngestCall, IngestFailure};

use args::{CommonArgs, DeclaredArgs, ImageArgs, SourceArgs, SourceCommand};
use progress::Display;
use work::Work;

/// Arguments of `stoker ingest`.
///
/// A heading holds for all options that follow, so that the groups with one are the last fields.
#[derive(Debug, clap::Args)]
#[command(subcommand_negates_reqs = true)]
pub struct IngestArgs {
    #[command(subcommand)]
    kind: Option<SourceCommand>,
    #[command(flatten)]
    sources: Option<SourceArgs>,
    #[command(flatten)]
    common: Option<CommonArgs>,
    #[command(flatten, next_help_heading = "Class folders of images")]
    images: Option<ImageArgs>,
    #[command(flatten, next_help_heading = "Parquet files")]
    declared: Option<DeclaredArgs>,
}

/// Runs `stoker ingest`. Ctrl-C stops it after the current group of rows; the same command then resumes after the last
/// finished unit.
pub async fn run(args: IngestArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let IngestArgs { kind, sources, common, images, declared } = args;
    let Some(kind) = kind else {
        // The parser has required them.
        let Some(sources) = sources else { anyhow::bail!("give a source and a table") };
        return run_sources(sources, common.unwrap_or_default(), images, declared, lake).await;
    };
    let has_options = sources.is_some() || common.is_some() || images.is_some() || declared.is_some();
    ensure!(
        !has_options,
        "arguments stand before the name of a kind of source: write them behind it, or ./ before a path of that name"
    );
    let common = match &kind {
        SourceCommand::Imagefolder(args) => &args.common,
        SourceCommand::Parquet(args) => &args.common,
    };
    common.warn_of_credentials();
    let is_quiet = common.quiet;
    let (work, table) = Work::of_command(kind)?;
    write(&work, &table, is_quiet, &open(lake).await?).await
}

async fn open(lake: &LakeArgs) -> anyhow::Result<LakeStore> {
    Ok(LakeStore::open(lake.local("ingest")?, &lake.storage()?).await?)
}

/// Looks at the sources, says what they are, and writes them or tells what would be written.
async fn run_sources(
    sources: SourceArgs,
    common: CommonArgs,
    images: Option<ImageArgs>,
    declared: Option<DeclaredArgs>,
    lake: &LakeArgs,
) -> anyhow::Result<()> {
    common.warn_of_credentials();
    // A lake that cannot be opened is told before sources are looked at, which can take long. A dry run needs none.
    let opened = match sources.dry_run {
        true => None,
        false => Some(open(lake).await?),
    };
    let found = recognise_sources(&sources.sources, sources.kind.as_deref(), &common.source_options()?).await?;
    let (is_quiet, on_error) = (common.quiet, common.on_error);
    if !is_quiet {
        // The size of standard input is not known.
        let bytes = if found.bytes == 0 { String::new() } else { format!(", {}", HumanBytes(found.bytes)) };
        eprintln!("found: {}, {} files{bytes}", found.kind, HumanCount(found.files));
    }
    let table = sources.table.clone();
    let work = Work::of_sources(sources, found.kind, common, images, declared)?;
    match opened {
        Some(lake) => write(&work, &table, is_quiet, &lake).await,
        None => dry_run::print(&mut output(), &table, &work.inspect().await?, on_error),
    }
}

/// Writes a table, and prints a report.
async fn write(work: &Work, table: &TableName, is_quiet: bool, lake: &LakeStore) -> anyhow::Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let watching = tokio::spawn(stop_on_ctrl_c(stop.clone()));
    let started = Instant::now();
    refuse_view(lake, table).await?;
    let progress = Display::new(is_quiet, stop);
    let report = work.run(lake, table, &progress).await;
    progress.clear();
    let report = report?;
    watching.abort();
    report::print(table, &report, started.elapsed())?;
    let written = lake.table(table, &SnapshotRef::Version(report.version)).await?;
    if written.schema().fields().iter().any(|field| is_compressed_tensor(field)) {
        for line in stoker_maintenance::describe(&written).await?.iter().filter_map(of_compression) {
            writeln!(output(), "{line}")?;
        }
    }
    Ok(())
}

/// Requests a stop at the first Ctrl-C, and exits the process at the second.
async fn stop_on_ctrl_c(stop: Arc<AtomicBool>) {
    while tokio::signal::ctrl_c().await.is_ok() {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        eprintln!("stopping; press Ctrl-C again to end at once");
    }
}
