//! `stoker doctor`.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use stoker_types::calls::{ExamineTable, TableAt};
use stoker_types::{ColumnLayout, Finding, SnapshotRef};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;
use crate::print::print_cells;

/// Report which columns of a table are read as plain bytes, and how to convert the others.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The table
    table: String,
    #[command(flatten)]
    at: AtArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Prints the verdict on each column, and the findings.
pub async fn run(args: DoctorArgs, lake: &LakeArgs) -> anyhow::Result<()> {
    let connection = lake.connect().await?;
    let info = connection.table(&args.table, &args.at.snapshot()).await?;
    let diagnosis =
        connection.call(ExamineTable(TableAt::new(&args.table, &SnapshotRef::Version(info.version)))).await?;
    let mut out = output();
    if args.json {
        let columns: Vec<Value> = diagnosis.columns.iter().map(with_verdict).collect::<Result<_, _>>()?;
        let answer = json!({
            "table": info.name, "version": info.version, "num_rows": info.num_rows, "columns": columns,
            "findings": diagnosis.findings,
        });
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    writeln!(out, "{} version {}, {} rows", info.name, info.version, info.num_rows)?;
    let mut rows = vec![["column", "kind", "bytes/row", "verdict", "findings"].map(String::from)];
    for column in &diagnosis.columns {
        rows.push([
            column.name.clone(),
            column.kind.clone(),
            column.bytes_per_row.map_or("?".into(), |bytes| bytes.to_string()),
            column.verdict().as_str().into(),
            codes(&diagnosis.findings, &column.name).join(", "),
        ]);
    }
    print_cells(&mut out, &rows)?;
    for finding in &diagnosis.findings {
        writeln!(out, "\n{finding}")?;
    }
    if diagnosis.findings.is_empty() {
        writeln!(out, "\nnothing costs speed or safety here")?;
    }
    if diagnosis.findings.iter().any(|finding| finding.example.is_some()) {
        writeln!(out, "\nThe lines of Python need: import stoker; lake = stoker.connect(…), to the lake itself")?;
    }
    Ok(())
}

/// Returns a column's layout as JSON, with its verdict.
fn with_verdict(layout: &ColumnLayout) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(layout)?;
    value["verdict"] = layout.verdict().as_str().into();
    Ok(value)
}

/// Returns the codes of the findings about a column.
fn codes<'a>(findings: &'a [Finding], column: &str) -> Vec<&'a str> {
    let is_about = |finding: &&Finding| finding.column.as_deref() == Some(column);
    findings.iter().filter(is_about).map(|finding| finding.code.as_str()).collect()
}
