//! Measures the first batch from an object store, in a process that has cached nothing.

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::data::DataSet;
use crate::repetitions;
use crate::report::{median, rounded, spread, text};
use crate::runs::report;
use crate::service::own_command;
use crate::settings::{Settings, lake_in};
use crate::store::Store;

/// The folder of the lake that stores planned streams.
const PLANS: &str = "_stoker";

/// The figures of one process, up to its first batch.
struct First {
    /// Seconds from the start of the process to its end.
    secs: f64,
    /// Seconds of these for planning the stream.
    plan_secs: f64,
    requests: f64,
    bytes: f64,
}

/// Starts processes that read one batch: of a stream that was never planned before, and of a stream that the lake has
/// stored.
pub fn measure(settings: &Settings, dir: &Path, data: &DataSet) -> anyhow::Result<Value> {
    let store = Store::start(dir, settings.latency_ms)?;
    let plans = lake_in(dir).join(PLANS);
    let (mut fresh, mut known) = (Vec::new(), Vec::new());
    let settings = &Settings { no_profile: true, ..settings.clone() };
    for _ in repetitions("first batch from S3", settings, data) {
        match std::fs::remove_dir_all(&plans) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        fresh.push(first_batch(settings, data, &store)?);
        known.push(first_batch(settings, data, &store)?);
    }
    Ok(json!({
        "title": "first batch from S3, cold process",
        "data": {
            "table": data.kind.table(), "row": data.kind.describe(), "rows": data.num_rows,
            "batch_size": settings.batch_size, "repeat": settings.repeat, "latency_ms": settings.latency_ms,
        },
        "lines": [line("new stream", &fresh), line("known stream", &known)],
        "notes": ["From the start of the process to its end. Requests and bytes: all that the store counted, read-ahead included."],
    }))
}

fn first_batch(settings: &Settings, data: &DataSet, store: &Store) -> anyhow::Result<First> {
    let (query, batch_size) = (data.query(), settings.batch_size.to_string());
    let mut command = own_command(&["stream", &query, "--json", "--max-batches", "1", "--batch-size", &batch_size])?;
    command.args(store.lake_args());
    let before = store.stats()?;
    let started = Instant::now();
    let report = report(&mut command)?;
    let secs = started.elapsed().as_secs_f64();
    let after = store.stats()?;
    anyhow::ensure!(report["steps"] == 1, "the process took {} batches", report["steps"]);
    Ok(First {
        secs,
        plan_secs: report["plan_secs"].as_f64().unwrap_or(0.0),
        requests: (after.requests - before.requests) as f64,
        bytes: (after.bytes - before.bytes) as f64,
    })
}

fn line(name: &str, all: &[First]) -> Value {
    let figures = |figure: fn(&First) -> f64| -> Vec<f64> { all.iter().map(figure).collect() };
    let secs = figures(|first| first.secs);
    json!({
        "name": name,
        "secs": rounded(median(&secs), 3),
        "spread": spread(&secs).map(|secs| rounded(secs, 3)),
        "plan_secs": rounded(median(&figures(|first| first.plan_secs)), 3),
        "requests": median(&figures(|first| first.requests)),
        "kilobytes_read": rounded(median(&figures(|first| first.bytes)) / 1e3, 1),
    })
}

/// Prints the table of the report.
pub fn print(out: &mut impl Write, first: &Value) -> anyhow::Result<()> {
    let [row, rows, batch_size, repeat] = ["row", "rows", "batch_size", "repeat"].map(|key| text(&first["data"][key]));
    writeln!(out, "{}: {rows} rows of {row}, a batch of {batch_size}, median of {repeat}\n", text(&first["title"]))?;
    writeln!(out, "| process | s | min–max | planning s | requests | KB read |")?;
    writeln!(out, "|---|--:|--:|--:|--:|--:|")?;
    for line in first["lines"].as_array().into_iter().flatten() {
        let [name, secs, planning, requests, read] =
            ["name", "secs", "plan_secs", "requests", "kilobytes_read"].map(|key| text(&line[key]));
        let [from, to] = [0usize, 1].map(|index| text(&line["spread"][index]));
        writeln!(out, "| {name} | {secs} | {from}–{to} | {planning} | {requests} | {read} |")?;
    }
    writeln!(out)?;
    for note in first["notes"].as_array().into_iter().flatten() {
        writeln!(out, "{}\n", text(note))?;
    }
    Ok(())
}
