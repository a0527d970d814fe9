//! Runs streams in processes of their own.

use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::report::Measurement;
use crate::service::own_command;

/// The kinds of shuffling that are measured: their names, and the values of `--shuffle`.
pub const WAYS: [(&str, &str); 2] = [("sequential", "none"), ("block-shuffled", "block")];

/// A stream that a process reads.
pub struct BenchRun<'a> {
    pub query: &'a str,
    pub batch_size: u64,
    pub epochs: u64,
    /// `none` or `block`.
    pub shuffle: &'a str,
    /// The arguments of `stoker stream` that give the lake or server, and further arguments.
    pub target: Vec<String>,
}

impl BenchRun<'_> {
    /// Reads the stream in a process that itself opens the lake or connects to the server.
    pub fn measure(&self) -> anyhow::Result<Measurement> {
        let (batch_size, epochs) = (self.batch_size.to_string(), self.epochs.to_string());
        let args = ["stream", self.query, "--json", "--last-batch", "uneven", "--shuffle", self.shuffle];
        let mut command = own_command(&args)?;
        command.args(["--batch-size", &batch_size, "--epochs", &epochs]).args(&self.target);
        measurement(&report(&mut command)?)
    }
}

/// Runs a process and parses the JSON that it prints.
pub fn report(command: &mut Command) -> anyhow::Result<Value> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {name}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed: {}", said.trim().lines().next_back().unwrap_or("no message"));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{name} did not print a report"))
}

/// Makes a measurement from a report like that of `stoker stream`.
pub fn measurement(report: &Value) -> anyhow::Result<Measurement> {
    let number = |key: &str| report[key].as_f64().with_context(|| format!("the report has no {key}"));
    let whole = |key: &str| report[key].as_u64().with_context(|| format!("the report has no {key}"));
    let (steady_bytes, steady_secs) = match &report["steady_bytes"] {
        Value::Null => (whole("bytes")?, number("secs")?),
        _ => (whole("steady_bytes")?, number("steady_secs")?),
    };
    // If the report has no figure for the steady epochs alone, as for several streams in one process, each byte is
    // taken to cost the same.
    let share = || Ok::<_, anyhow::Error>(number("cpu_secs")? * steady_bytes as f64 / whole("bytes")?.max(1) as f64);
    let cpu_secs = report["steady_cpu_secs"].as_f64().map_or_else(share, Ok)?;
    // A stream through a server reports zero here, because it does not know what the server read.
    let read = |key: &str| report[key].as_u64().filter(|count| *count > 0);
    Ok(Measurement {
        bytes: whole("bytes")?,
        rows: whole("rows")?,
        steady_bytes,
        steady_secs,
        first_batch_secs: report["first_batch_secs"].as_f64(),
        cpu_secs: Some(cpu_secs),
        server_cpu_secs: None,
        peak_bytes: report["peak_memory_bytes"].as_u64(),
        requests: read("requests"),
        bytes_read: read("bytes_read"),
    })
}
