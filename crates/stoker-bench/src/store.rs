//! An object store for one benchmark, with counts of its requests and bytes.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::data::{ByteRange, DataSet};
use crate::get_ranges::{Connection, GetRange};
use crate::object_server::STATS_PATH;
use crate::path_text;
use crate::report::Measurement;
use crate::runs::measurement;
use crate::service::{Service, own_command};
use crate::settings::{BUCKET, LAKE};

/// The maximum number of bytes of the store's counts as text.
const STATS_BYTES_MAX: usize = 4 << 10;

/// A running `stoker bench object-server` over the folder of the benchmark's data.
pub struct Store {
    service: Service,
}

/// The counts of a store so far.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Stats {
    pub requests: u64,
    /// Bytes of the response bodies that were sent.
    pub bytes: u64,
}

impl Store {
    /// Starts a store with a latency before each response.
    pub fn start(dir: &Path, latency_ms: u64) -> anyhow::Result<Self> {
        let latency = latency_ms.to_string();
        let args = ["bench", "object-server", "--dir", path_text(dir)?, "--latency-ms", &latency];
        let mut command = own_command(&args)?;
        // With huge pages, the kernel would clear a huge page for each thread of the store, one per connection, during
        // the measurement.
        command.env("MIMALLOC_ALLOW_THP", "0");
        Ok(Self { service: Service::start(&mut command)? })
    }

    /// Returns the arguments with which `stoker` opens the lake in the store.
    pub fn lake_args(&self) -> Vec<String> {
        let options = [
            format!("aws_endpoint={}", self.service.address),
            "aws_region=us-east-1".to_string(),
            "aws_access_key_id=bench".to_string(),
            "aws_secret_access_key=bench".to_string(),
        ];
        let lake = ["--lake".to_string(), format!("s3://{BUCKET}/{LAKE}")];
        lake.into_iter()
            .chain(options.into_iter().flat_map(|option| ["--storage-option".to_string(), option]))
            .collect()
    }

    /// Returns the counts of the store so far.
    pub fn stats(&self) -> anyhow::Result<Stats> {
        let mut connection = Connection::open(self.host()?, STATS_BYTES_MAX)?;
        let stats = connection.request(STATS_PATH, "Connection: close\r\n")?;
        serde_json::from_slice(stats).context("the store's counts")
    }

    /// Runs a measurement, and adds the store's requests, bytes and processor time.
    pub fn measured(&self, work: impl FnOnce() -> anyhow::Result<Measurement>) -> anyhow::Result<Measurement> {
        let (before, cpu_before) = (self.stats()?, self.service.cpu_secs());
        let measured = work()?;
        let (after, cpu_after) = (self.stats()?, self.service.cpu_secs());
        Ok(Measurement {
            server_cpu_secs: Some(cpu_after - cpu_before),
            requests: Some(after.requests - before.requests),
            bytes_read: Some(after.bytes - before.bytes),
            ..measured
        })
    }

    /// Reads ranges of a table's files over a number of connections, in a process of its own that does nothing else.
    pub fn get_ranges(
        &self,
        data: &DataSet,
        ranges: &[ByteRange],
        connections: u64,
        epochs: u64,
    ) -> anyhow::Result<Measurement> {
        let folder = format!("/{BUCKET}/{LAKE}/{}.lance/data", data.kind.table());
        let wanted = |range: &ByteRange| GetRange {
            path: format!("{folder}/{}", range.file),
            offset: range.offset,
            length: range.length,
        };
        let wanted = serde_json::to_vec(&ranges.iter().map(wanted).collect::<Vec<_>>())?;
        let (connections, epochs) = (connections.to_string(), epochs.to_string());
        let args =
            ["bench", "get-ranges", "--address", self.host()?, "--connections", &connections, "--epochs", &epochs];
        let mut child = own_command(&args)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut input = child.stdin.take().context("the process has no input")?;
        let written = input.write_all(&wanted);
        drop(input);
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "`stoker bench get-ranges` failed; what it said is above");
        written?;
        let measured = measurement(&serde_json::from_slice(&output.stdout)?)?;
        Ok(Measurement { rows: measured.bytes / data.kind.row_bytes(), ..measured })
    }

    fn host(&self) -> anyhow::Result<&str> {
        self.service.address.strip_prefix("http://").context("the store's address is no URL")
    }
}
