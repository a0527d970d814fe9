//! `stoker quarantine`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use stoker::{Connection, LocalLake};
use stoker_lake::LakeStore;
use stoker_maintenance::{Quarantined, quarantine};
use stoker_sql::{Engine, EngineOptions, NO_ROW};
use stoker_types::{Digest, Receipt, SnapshotRef, SubstitutedRow, TableName};

use crate::connect::LakeArgs;
use crate::output::output;

/// Exclude bad rows from later versions of a table; older versions keep them.
#[derive(Debug, Args)]
pub struct QuarantineArgs {
    /// The table
    table: String,
    /// Addresses of bad rows, decimal or hexadecimal with 0x, as batches and `stoker replay` report them
    #[arg(long = "row", value_name = "ADDR", num_args = 1.., value_parser = row_addr)]
    #[arg(required_unless_present = "receipts")]
    rows: Vec<u64>,
    /// Receipts, as `stoker stream --receipt` and `Stream.receipt()` write them; the bad rows that they name are
    /// excluded
    #[arg(long = "receipt", value_name = "FILE", num_args = 1..)]
    receipts: Vec<PathBuf>,
    /// The reason, which is kept in the transaction of the new version
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only print how many rows would be excluded
    #[arg(long)]
    dry_run: bool,
}

/// Excludes the rows in one commit, and prints the outcome.
pub async fn run(args: QuarantineArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let name = TableName::try_new(args.table)?;
    let lake = LakeStore::open(lake.local("quarantine")?, &lake.storage()?).await?;
    let table = lake.table(&name, &SnapshotRef::Latest).await?;
    let mut rows: BTreeSet<u64> = args.rows.into_iter().collect();
    rows.extend(named_by_receipts(&lake, &name, &args.receipts).await?);
    let rows: Vec<u64> = rows.into_iter().collect();
    let told = if rows.is_empty() {
        format!("the receipts name no bad row of table {name}")
    } else if args.dry_run {
        let before = table.num_deleted(&rows).await?;
        format!("would exclude {} of table {name}{}", counted(rows.len() as u64 - before), known(before))
    } else {
        outcome(&name, &quarantine(&lake, &name, &rows, args.reason.as_deref()).await?)
    };
    writeln!(output(), "{told}")?;
    Ok(())
}

/// Returns the addresses of the bad rows of a table that the receipts name.
async fn named_by_receipts(lake: &LakeStore, name: &TableName, files: &[PathBuf]) -> anyhow::Result<BTreeSet<u64>> {
    let mut by_stream: BTreeMap<Digest, Vec<(&PathBuf, SubstitutedRow)>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let receipt = Receipt::from_json(&text).with_context(|| file.display().to_string())?;
        for bad in receipt.parts.into_iter().flat_map(|part| part.substituted) {
            by_stream.entry(receipt.stream_id).or_default().push((file, bad));
        }
    }
    let connection = Connection::new(LocalLake::from(Engine::new(lake.clone(), EngineOptions::default())));
    let mut addrs = BTreeSet::new();
    for (stream_id, rows) in by_stream {
        let tables = connection.stream_by_id(stream_id).await?.tables();
        for (file, bad) in rows {
            ensure!(
                bad.row_addrs.len() == tables.len(),
                "receipt {} names a row of {} tables at position {}; stream {stream_id} has {} tables",
                file.display(),
                bad.row_addrs.len(),
                bad.position,
                tables.len()
            );
            let of_table = tables.iter().zip(bad.row_addrs).filter(|(table, _)| table.table == *name);
            addrs.extend(of_table.map(|(_, addr)| addr).filter(|addr| *addr != NO_ROW));
        }
    }
    Ok(addrs)
}

/// Describes the outcome of a quarantine.
fn outcome(name: &TableName, done: &Quarantined) -> String {
    let Quarantined { version, num_excluded, num_excluded_before } = *done;
    let before = known(num_excluded_before);
    if num_excluded == 0 {
        return format!("excluded no row of table {name}{before}; its newest version is {version}");
    }
    let (rows, them) = (counted(num_excluded), if num_excluded == 1 { "it" } else { "them" });
    let kept = format!("older versions keep {them}: AT (VERSION => {})", version.saturating_sub(1));
    format!("excluded {rows} of table {name} in version {version}{before}; {kept}")
}

fn counted(num_rows: u64) -> String {
    match num_rows {
        0 => "no row".into(),
        1 => "1 row".into(),
        _ => format!("{num_rows} rows"),
    }
}

fn known(num_excluded_before: u64) -> String {
    match num_excluded_before {
        0 => String::new(),
        1 => " (1 was excluded before)".into(),
        before => format!(" ({before} were excluded before)"),
    }
}

/// Parses a row address.
fn row_addr(text: &str) -> Result<u64, String> {
    let addr = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    addr.map_err(|source| format!("{source}; a row address is a whole number, decimal or 0x and hexadecimal"))
}
