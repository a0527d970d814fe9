//! Measurements in processes of their own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};

use crate::bench::report::Measurement;
use crate::process::process_use;

const QUERY: &str = "SELECT image, label FROM bench";

/// Streams the table in a process that opens the lake itself; `more` are further arguments.
pub fn in_process(lake: &str, shuffle: &str, batch_size: u64, more: &[&str]) -> anyhow::Result<Measurement> {
    stream(&[&["--lake", lake], more].concat(), shuffle, batch_size)
}

fn stream(target: &[&str], shuffle: &str, batch_size: u64) -> anyhow::Result<Measurement> {
    let size = batch_size.to_string();
    let output = Command::new(std::env::current_exe()?)
        .args(["stream", QUERY, "--json", "--batch-size", &size, "--shuffle", shuffle, "--last-batch", "uneven"])
        .args(target)
        .env_remove("STOKER_LAKE")
        .env_remove("STOKER_SERVER")
        .output()?;
    if !output.status.success() {
        bail!("stoker stream failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let number = |key: &str| report[key].as_f64().with_context(|| format!("the report has no {key}"));
    Ok(Measurement {
        bytes: number("bytes")? as u64,
        rows: number("rows")? as u64,
        secs: number("secs")?,
        first_batch_secs: report["first_batch_secs"].as_f64(),
        cpu_secs: number("cpu_secs")?,
        server_cpu_secs: None,
        peak_bytes: number("peak_memory_bytes")? as u64,
    })
}

/// A server on the loopback interface; ended when dropped.
pub struct Server {
    process: Child,
    address: String,
}

impl Server {
    /// Starts a server and waits until it listens.
    pub fn start(lake: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--lake", lake, "--listen", "127.0.0.1:0"])
            .env_remove("STOKER_SERVER")
            .stdout(Stdio::piped())
            .spawn()?;
        let output = process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let mut server = Self { process, address: String::new() };
        read?;
        server.address =
            line.trim().strip_prefix("listening on ").with_context(|| format!("the server said {line:?}"))?.to_string();
        Ok(server)
    }

    /// Streams the table through the server.
    pub fn stream(&self, shuffle: &str, batch_size: u64) -> anyhow::Result<Measurement> {
        let before = process_use(self.process.id());
        let mut measurement = stream(&["--server", &self.address], shuffle, batch_size)?;
        let after = process_use(self.process.id());
        measurement.server_cpu_secs = Some(after.cpu_secs - before.cpu_secs);
        Ok(measurement)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
