//! `stoker bench get-ranges`: measures the ceiling of reading from an object store, in a process of its own.
//!
//! Each connection takes the next range, requests it with only the headers that HTTP/1.1 needs, and reads the body into
//! a buffer that it reuses. The kernel's copy from the socket is the only copy of a byte.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use stoker_measure::process_use;

/// Read ranges of objects as fast as the store sends them, and report the rate as JSON.
#[derive(Debug, Args)]
pub struct GetRangesArgs {
    /// The store: HOST:PORT
    #[arg(long)]
    address: String,
    /// The number of connections
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..))]
    connections: u64,
    /// The number of passes over all ranges; the rate is that of all passes but the first
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
}

/// A range of an object. The command reads a JSON list of them from standard input.
#[derive(Debug, Serialize, Deserialize)]
pub struct GetRange {
    /// `/bucket/key`.
    pub path: String,
    pub offset: u64,
    pub length: u64,
}

/// Reads all ranges and prints the report.
pub fn run(args: &GetRangesArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let wanted: Vec<GetRange> = serde_json::from_reader(std::io::stdin().lock()).context("standard input")?;
    let buffer_bytes = usize::try_from(wanted.iter().map(|range| range.length).max().unwrap_or(0))?;
    let open = |_| Connection::open(&args.address, buffer_bytes);
    let mut connections = (0..args.connections).map(open).collect::<anyhow::Result<Vec<_>>>()?;
    let bytes: u64 = wanted.iter().map(|range| range.length).sum();
    let started = Instant::now();
    let mut first_pass = (Duration::ZERO, 0.0);
    for epoch in 0..args.epochs {
        pass(&mut connections, &wanted)?;
        if epoch == 0 {
            first_pass = (started.elapsed(), process_use(std::process::id()).cpu_secs);
        }
    }
    let (elapsed, usage) = (started.elapsed(), process_use(std::process::id()));
    let (steady_bytes, steady, steady_cpu_secs) = match args.epochs {
        1 => (bytes, elapsed, usage.cpu_secs),
        epochs => (bytes * (epochs - 1), elapsed - first_pass.0, usage.cpu_secs - first_pass.1),
    };
    let report = serde_json::json!({
        "bytes": bytes * args.epochs,
        "rows": 0,
        "requests": wanted.len() as u64 * args.epochs,
        "bytes_read": bytes * args.epochs,
        "steady_bytes": steady_bytes,
        "steady_secs": steady.as_secs_f64(),
        "steady_cpu_secs": steady_cpu_secs,
        "cpu_secs": usage.cpu_secs,
        "peak_memory_bytes": usage.peak_bytes,
    });
    writeln!(out, "{report}")?;
    Ok(())
}

/// Reads all ranges once.
fn pass(connections: &mut [Connection], wanted: &[GetRange]) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let drain = |connection: &mut Connection| -> anyhow::Result<()> {
        while let Some(range) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            connection.get(range)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let tasks: Vec<_> = connections.iter_mut().map(|connection| scope.spawn(move || drain(connection))).collect();
        tasks.into_iter().try_for_each(|task| task.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

/// An open connection, with the buffer for its responses.
pub struct Connection {
    stream: TcpStream,
    host: String,
    /// Has room for the header of a response, too.
    buffer: Vec<u8>,
}

/// The maximum number of bytes of a response's header.
const HEAD_BYTES_MAX: usize = 64 << 10;

impl Connection {
    /// Connects, and allocates memory for bodies of up to `body_bytes_max` bytes.
    pub fn open(address: &str, body_bytes_max: usize) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, host: address.to_string(), buffer: vec![1; body_bytes_max + HEAD_BYTES_MAX] })
    }

    /// Reads a range.
    fn get(&mut self, wanted: &GetRange) -> anyhow::Result<()> {
        let GetRange { path, offset, length } = wanted;
        let header = format!("Range: bytes={offset}-{}\r\n", (offset + length).saturating_sub(1));
        let body = self.request(path, &header)?;
        match body.len() as u64 == *length {
            true => Ok(()),
            false => bail!("{path} gave {} bytes from {offset} on, not {length}", body.len()),
        }
    }

    /// Sends a GET with further header lines, and returns the body.
    pub fn request(&mut self, path: &str, headers: &str) -> anyhow::Result<&[u8]> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}\r\n", self.host);
        self.stream.write_all(request.as_bytes())?;
        let mut filled = 0;
        let body = loop {
            let count = self.stream.read(&mut self.buffer[filled..])?;
            if count == 0 {
                bail!("the store closed the connection before it answered {path}");
            }
            // The end of the header may be split between two reads.
            let from = filled.saturating_sub(3);
            filled += count;
            if let Some(at) = self.buffer[from..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break from + at + 4;
            }
            if filled > HEAD_BYTES_MAX {
                bail!("the head of the answer to {path} is too long");
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..body]).into_owned();
        if !head.starts_with("HTTP/1.1 2") {
            bail!("the store refused {path}: {}", head.lines().next().unwrap_or_default());
        }
        let length = |line: &str| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        };
        let length = head.lines().find_map(length).with_context(|| format!("{path} has no length"))?;
        let end = body + length;
        if end > self.buffer.len() || filled > end {
            bail!("{path} gave another number of bytes than was asked for");
        }
        self.stream.read_exact(&mut self.buffer[filled..end])?;
        Ok(&self.buffer[body..end])
    }
}
