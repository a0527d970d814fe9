//! `stoker doctor`.

use std::io::Write;

use clap::Args;
use serde_json::{Value, json};
use stoker_types::calls::{ExamineTable, TableAt};
use stoker_types::{ColumnLayout, Finding, SnapshotRef};

use crate::connect::{AtArgs, LakeArgs};
use crate::output::output;
use crate::print::print_cells;

/// Where Linux says whether programs get huge pages.
const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Report which columns of a table are read as plain bytes, and how to convert the others.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The table
    table: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: AtArgs,
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
    if let Some(advice) = std::fs::read_to_string(HUGE_PAGES).ok().as_deref().and_then(huge_page_advice) {
        writeln!(out, "\n{advice}")?;
    }
    if diagnosis.findings.iter().any(|finding| finding.example.is_some()) {
        writeln!(out, "\nThe lines of Python need: import stoker; lake = stoker.connect(…), to the lake itself")?;
    }
    Ok(())
}

/// Returns what to set on a machine that gives no huge pages, from the text of its setting, which has brackets around the
/// choice.
fn huge_page_advice(setting: &str) -> Option<String> {
    setting.contains("[never]").then(|| {
        format!(
            "this machine gives no huge pages, in which the first batches of a process may be there sooner: as root, \
             echo madvise > {HUGE_PAGES}"
        )
    })
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

#[cfg(test)]
mod tests {
    use super::huge_page_advice;

    #[test]
    fn machines_without_huge_pages_get_advice() {
        for setting in ["always [madvise] never\n", "[always] madvise never\n", ""] {
            assert_eq!(huge_page_advice(setting), None);
        }
        let advice = huge_page_advice("always madvise [never]\n").expect("advice");
        assert!(advice.ends_with("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"), "{advice}");
    }
}
