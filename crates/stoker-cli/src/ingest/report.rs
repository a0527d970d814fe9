//! Prints what an ingest did.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use indicatif::{HumanBytes, HumanCount};
use stoker_ingest::{IngestReport, LAKES_LEFT_OUT};
use stoker_types::TableName;

use crate::output::output;

/// Prints the report of an ingest; what was skipped and left out goes to standard error.
pub(super) fn print(table: &TableName, report: &IngestReport, elapsed: Duration) -> anyhow::Result<()> {
    for skipped in &report.skipped {
        eprintln!("skipped {skipped}");
    }
    if !report.left_out.is_empty() {
        eprintln!("{}", left_out(&report.left_out));
    }
    if report.already_ingested {
        writeln!(
            output(),
            "table {table}: version {} contains these sources already ({} rows); nothing was written, --again writes \
             them again",
            report.version,
            HumanCount(report.rows)
        )?;
        return Ok(());
    }
    let resumed = match report.resumed_units {
        0 => String::new(),
        units => format!(", {units} units from an earlier run"),
    };
    let known = match report.known_files {
        0 => String::new(),
        files => format!(", {} files were there already", HumanCount(files)),
    };
    // The size of standard input is not known.
    let bytes = if report.bytes == 0 { String::new() } else { format!(" ({})", HumanBytes(report.bytes)) };
    writeln!(
        output(),
        "table {table}: version {}, {} rows from {} files{bytes} in {:.1} s, {} skipped{known}{resumed}",
        report.version,
        HumanCount(report.rows),
        HumanCount(report.files),
        elapsed.as_secs_f64(),
        HumanCount(report.num_skipped())
    )?;
    Ok(())
}

/// Says how many files were left out because of their extensions, the most frequent extension first, and how many lakes.
pub(super) fn left_out(endings: &BTreeMap<String, u64>) -> String {
    let (lakes, files): (Vec<_>, Vec<_>) = endings.iter().partition(|(ending, _)| *ending == LAKES_LEFT_OUT);
    let files = (!files.is_empty()).then(|| files_left_out(files));
    let lakes = lakes.first().map(|(_, count)| match **count {
        1 => "1 folder that is a Stoker lake was left out".to_string(),
        count => format!("{count} folders that are Stoker lakes were left out"),
    });
    files.into_iter().chain(lakes).collect::<Vec<_>>().join("; ")
}

fn files_left_out(mut counts: Vec<(&String, &u64)>) -> String {
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let listed: Vec<String> = counts.iter().map(|(ending, count)| format!("{ending} {count}")).collect();
    let files = match counts.iter().map(|(_, count)| **count).sum::<u64>() {
        1 => "1 file with another ending was".to_string(),
        count => format!("{count} files with other endings were"),
    };
    format!("{files} left out: {}", listed.join(", "))
}
