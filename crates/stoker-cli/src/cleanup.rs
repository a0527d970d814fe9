//! `stoker cleanup`.

use std::collections::{BTreeSet, HashMap};
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::Args;
use stoker_ingest::{clean_journals, last_listed};
use stoker_lake::{CleanedTable, LakeStore};
use stoker_server::clean_parameters;
use stoker_stream::{CleanedStreams, ForgottenRuns, clean_streams, forget_runs};
use stoker_types::TableName;
use tokio::signal::unix::{SignalKind, signal};

use crate::connect::LakeArgs;
use crate::output::output;

/// Remove old versions of tables, and files that no version names any more.
#[derive(Debug, Args)]
pub struct CleanupArgs {
    /// The tables, which are cleaned with their branches; all by default
    tables: Vec<String>,
    /// How long a version is kept after a newer one replaced it, such as 30d or 12h: at least one day, and at least 100
    /// times the deadline of a commit to the store. Tagged versions, and versions that streams hold, are kept in any
    /// case
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = humantime::parse_duration)]
    keep: Duration,
    /// Forget runs that began, logged and read nothing for this long, such as 90d: their names and their entries in the
    /// log. Versions that only these runs hold are removed, too, when --keep allows it
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    forget_runs: Option<Duration>,
    /// Only print what would be removed. Versions that forgotten runs hold are not counted
    #[arg(long)]
    dry_run: bool,
}

/// Removes old versions and unreferenced files, and prints what was removed.
pub async fn run(args: CleanupArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let names = args.tables.iter().map(TableName::try_new).collect::<Result<Vec<_>, _>>()?;
    let lake = LakeStore::open(lake.local("cleanup")?, &lake.storage()?).await?;
    let kept = lake.retention(args.keep);
    if kept > args.keep {
        eprintln!("keeping versions for {}, the shortest time that is safe", humantime::format_duration(kept));
    }
    if args.dry_run {
        return clean(&lake, names, args.keep, args.forget_runs, true).await;
    }
    let mut lock = lake.lock_cleanup().await?;
    let work = async { clean(&lake, names, args.keep, args.forget_runs, false).await.map_err(Stopped::Work) };
    let done = tokio::select! {
        done = lock.while_held(work) => done,
        _ = told_to_stop() => Err(Stopped::Work(anyhow!("the cleanup was interrupted before its end: run it again"))),
    };
    let released = lock.release().await;
    done.map_err(|stopped| match stopped {
        Stopped::Work(error) => error,
        Stopped::Lock(error) => anyhow::Error::new(error).context("the cleanup stopped before its end: run it again"),
    })?;
    Ok(released?)
}

/// Waits for Ctrl-C or SIGTERM.
async fn told_to_stop() {
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// Why a cleanup stopped before its end.
enum Stopped {
    Work(anyhow::Error),
    Lock(stoker_lake::Error),
}

impl From<stoker_lake::Error> for Stopped {
    fn from(error: stoker_lake::Error) -> Self {
        Self::Lock(error)
    }
}

async fn clean(
    lake: &LakeStore,
    names: Vec<TableName>,
    keep: Duration,
    unused_for: Option<Duration>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let mut out = output();
    if let Some(unused_for) = unused_for {
        eprintln!("checking runs");
        let forgotten = forget_runs(lake, lake.retention(unused_for), dry_run).await?;
        writeln!(out, "runs: {}", of_runs(forgotten, dry_run))?;
    }
    let names = lake.with_branches(if names.is_empty() { lake.tables().await? } else { names }).await?;
    let mut removed: HashMap<TableName, BTreeSet<u64>> = HashMap::new();
    for (number, name) in names.iter().enumerate() {
        eprintln!("checking table {name} ({} of {})", number + 1, names.len());
        let spare_after = last_listed(lake, name).await?;
        let cleaned = lake.clean_table(name, keep, spare_after, dry_run).await?;
        let cleaned = cleaned.with_context(|| format!("table {name} does not exist in {}", lake.place()))?;
        writeln!(out, "{name}: {}", of_table(&cleaned, dry_run))?;
        removed.insert(name.clone(), cleaned.versions);
    }
    eprintln!("checking files of streams, ingests and prepared statements");
    let age = lake.retention(keep);
    let streams = clean_streams(lake, age, dry_run, &removed).await?;
    let journals = clean_journals(lake, age, dry_run).await?;
    let parameters = clean_parameters(lake, age, dry_run).await?;
    writeln!(out, "streams and ingests: {}", of_streams(&streams, journals, dry_run))?;
    if parameters > 0 {
        writeln!(out, "prepared statements: {} {} of parameters", verb(dry_run), counted(parameters, "object"))?;
    }
    Ok(())
}

fn of_table(cleaned: &CleanedTable, dry_run: bool) -> String {
    let CleanedTable { num_versions, num_files, bytes, num_failed, ref tagged, ref held, is_partial, .. } = *cleaned;
    let mut text = format!(
        "{} {}, {} ({})",
        verb(dry_run),
        counted(num_versions, "version"),
        counted(num_files, "file"),
        mebibytes(bytes)
    );
    if !tagged.is_empty() {
        text += &format!("; {} with a tag: {}", counted(tagged.len() as u64, "older version"), listed(tagged));
        text += if tagged.len() == 1 { " stays" } else { " stay" };
    }
    if !held.is_empty() {
        let stay = if held.len() == 1 { "stays" } else { "stay" };
        text +=
            &format!("; {} that streams hold: {} {stay}", counted(held.len() as u64, "older version"), listed(held));
    }
    if is_partial {
        text += "; versions whose holds have expired are not counted";
    }
    if num_failed > 0 {
        text += &format!("; the store did not delete {}: run it again", counted(num_failed, "file"));
    }
    text
}

fn listed(versions: &BTreeSet<u64>) -> String {
    let numbers = versions.iter().take(10).map(u64::to_string).collect::<Vec<_>>().join(", ");
    numbers + if versions.len() > 10 { ", …" } else { "" }
}

fn of_streams(cleaned: &CleanedStreams, num_journals: u64, dry_run: bool) -> String {
    let CleanedStreams { num_specs, num_row_set_objects, bytes } = *cleaned;
    format!(
        "{} {}, {} of row sets ({}), {}",
        verb(dry_run),
        counted(num_specs, "specification"),
        counted(num_row_set_objects, "object"),
        mebibytes(bytes),
        counted(num_journals, "journal")
    )
}

fn of_runs(forgotten: ForgottenRuns, dry_run: bool) -> String {
    let (verb, held) = if dry_run { ("would forget", "hold") } else { ("forgot", "held") };
    let ForgottenRuns { num_runs, num_versions } = forgotten;
    format!("{verb} {}, which alone {held} {}", counted(num_runs, "run"), counted(num_versions, "version"))
}

fn verb(dry_run: bool) -> &'static str {
    if dry_run { "would remove" } else { "removed" }
}

fn counted(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}
