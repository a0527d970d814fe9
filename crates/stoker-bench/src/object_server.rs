//! `stoker bench object-server`: an S3-compatible store that serves a folder from the page cache, with a chosen
//! latency and bandwidth.
//!
//! ```text
//! GET /bucket/key ──► latency ──► DIR/bucket/key, from the page cache ──► the bandwidth that all connections share
//! ```
//!
//! The buckets are the folders in DIR. The server accepts any credentials. A thread serves each connection, so that
//! latencies overlap as they would over a network. The store is for benchmarks and tests only: it syncs nothing, and
//! everybody may read and write.

mod bandwidth;
mod dates;
mod http;
mod listing;
mod objects;
mod range;
mod stats;
mod uploads;
mod xml;

use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use tokio::net::TcpSocket;

use crate::object_server::bandwidth::Bandwidth;
use crate::object_server::http::{Body, Exchange, Request, Response};
use crate::object_server::stats::Stats;

/// The path of the counts of requests and bytes, as JSON. Requests for it are neither counted nor delayed.
pub const STATS_PATH: &str = "/__stats";

/// The stack size of a connection's thread in bytes.
const STACK_BYTES: usize = 512 << 10;

/// The number of connections that may wait for `accept`. The standard library's limit is 128; a client whose connection
/// finds the queue full retries after a second.
const WAITING_MAX: u32 = 4_096;

/// The smallest limit of the bandwidth in megabytes per second. A piece of a body takes at most some minutes.
const RATE_MIN: f64 = 0.001;

/// Serve a folder over the S3 protocol, with a latency before each response and a limit of its bandwidth.
#[derive(Debug, Args)]
pub struct ObjectServerArgs {
    /// The folder whose folders are the buckets
    #[arg(long)]
    dir: PathBuf,
    /// Milliseconds before each response
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// The megabytes (10^6 bytes) per second of the bodies of all responses together; without it, as fast as possible
    #[arg(long)]
    mb_per_sec: Option<f64>,
    /// The address to listen on; port 0 selects a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// The state that all connections share.
pub(crate) struct Store {
    /// The folder that contains the buckets.
    dir: PathBuf,
    latency: Duration,
    bandwidth: Option<Bandwidth>,
    stats: Stats,
    /// The number of the next upload.
    uploads: AtomicU64,
}

/// Serves until the process is terminated.
pub fn run(args: &ObjectServerArgs) -> anyhow::Result<()> {
    ensure!(args.dir.is_dir(), "{} is not a folder", args.dir.display());
    let rate = args.mb_per_sec;
    ensure!(
        rate.is_none_or(|rate| rate.is_finite() && rate >= RATE_MIN),
        "--mb-per-sec is {}; it must be a number from {RATE_MIN} on",
        rate.unwrap_or_default()
    );
    let listener = listen(&args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let store = Arc::new(Store {
        dir: args.dir.clone(),
        latency: Duration::from_millis(args.latency_ms),
        bandwidth: rate.map(|rate| Bandwidth::new(rate * 1e6)),
        stats: Stats::default(),
        uploads: AtomicU64::new(0),
    });
    let mut out = std::io::stdout();
    // The process that started the server may have closed its end of the pipe; the server then runs on.
    writeln!(out, "listening on http://{}", listener.local_addr()?).and_then(|()| out.flush()).ok();
    for connection in listener.incoming().flatten() {
        let store = store.clone();
        let thread = std::thread::Builder::new().name("connection".into()).stack_size(STACK_BYTES);
        // An error on a connection ends only that connection.
        thread.spawn(move || store.serve(connection).ok())?;
    }
    Ok(())
}

fn listen(address: &str) -> std::io::Result<TcpListener> {
    let no_address = || std::io::Error::new(std::io::ErrorKind::InvalidInput, "it names no address");
    let address = address.to_socket_addrs()?.next().ok_or_else(no_address)?;
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let listener = socket.listen(WAITING_MAX)?.into_std()?;
    listener.set_nonblocking(false)?;
    Ok(listener)
}

impl Store {
    /// Answers the requests of a connection, one after the other.
    fn serve(&self, connection: TcpStream) -> std::io::Result<()> {
        connection.set_nodelay(true)?;
        let mut output = connection.try_clone()?;
        let mut input = BufReader::new(connection);
        let mut piece = Vec::new();
        while let Some(request) = Request::read(&mut input)? {
            let mut exchange = Exchange::new(&request, &mut input, &mut output, &mut piece);
            if request.path == STATS_PATH {
                let response = Response::new(200).with_header("Content-Type", "application/json");
                exchange.answer(response.with_body(Body::Text(self.stats.to_json())), None, None)?;
                continue;
            }
            let response = match self.answer(&request, &mut exchange) {
                Ok(response) => response,
                Err(error) => Response::from_io_error(&error),
            };
            exchange.skip_body()?;
            std::thread::sleep(self.latency);
            exchange.answer(response, Some(&self.stats), self.bandwidth.as_ref())?;
            if !request.keep_alive {
                break;
            }
        }
        Ok(())
    }

    /// Answers a request.
    fn answer(&self, request: &Request, exchange: &mut Exchange<'_>) -> std::io::Result<Response> {
        let path = request.path.trim_start_matches('/');
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let has = |name: &str| request.query(name).is_some();
        let method = request.method.as_str();
        self.stats.count(method, key.is_empty());
        if !is_safe(bucket) || (!key.is_empty() && !is_safe(key)) {
            return Ok(Response::error(404, "NoSuchKey", "no object can have this name"));
        }
        match (method, key.is_empty()) {
            ("GET", true) => self.list(bucket, request),
            ("HEAD", true) => Ok(self.head_bucket(bucket)),
            ("PUT", true) => self.create_bucket(bucket),
            ("POST", true) if has("delete") => self.delete_all(bucket, &exchange.read_text()?),
            ("GET" | "HEAD", false) => self.get(bucket, key, request),
            ("PUT", false) if has("uploadId") => self.put_part(request, exchange),
            ("PUT", false) => self.put(bucket, key, request, exchange),
            ("POST", false) if has("uploads") => self.begin_upload(bucket, key),
            ("POST", false) if has("uploadId") => self.finish_upload(bucket, key, request),
            ("DELETE", false) if has("uploadId") => self.abort_upload(request),
            ("DELETE", false) => self.delete(bucket, key),
            _ => Ok(Response::error(501, "NotImplemented", "the benchmark's store does not know this request")),
        }
    }
}

/// Whether a bucket or key stays inside the folder and has no parts that a file system would interpret.
fn is_safe(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}
