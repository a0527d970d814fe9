//! `stoker bench object-server`: an S3-compatible store over a folder, as fast as the page cache and as far away as asked.
//!
//! ```text
//! GET /bucket/key ──► latency ──► DIR/bucket/key, from the page cache
//! ```
//!
//! Buckets are the folders in DIR. Any credentials will do. A thread serves each connection, so that latencies overlap as
//! they would over a network. It is a store for benchmarks and tests: nothing is synced, everybody may read and write.

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

use crate::bench::object_server::http::{Body, Exchange, Request, Response};
use crate::bench::object_server::stats::Stats;

/// Where the counts of requests and bytes are asked for, as JSON; such requests are not counted and not delayed.
pub const STATS_PATH: &str = "/__stats";

/// Bytes of the stack of a connection's thread.
const STACK_BYTES: usize = 512 << 10;

/// Connections that wait to be taken. The standard library has room for 128, and a client whose connection finds none tries again after
/// a second.
const WAITING_MAX: u32 = 4_096;

/// Serve a folder over the S3 protocol, with a latency before each response.
#[derive(Debug, Args)]
pub struct ObjectServerArgs {
    /// The folder whose folders are the buckets
    #[arg(long)]
    dir: PathBuf,
    /// Milliseconds before each response
    #[arg(long, default_value_t = 0)]
    latency_ms: u64,
    /// The address to listen on; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: String,
}

/// What all connections share.
pub(crate) struct Store {
    /// The folder of the buckets.
    dir: PathBuf,
    latency: Duration,
    stats: Stats,
    /// Numbers uploads.
    uploads: AtomicU64,
}

/// Serves until the process is ended.
pub fn run(args: &ObjectServerArgs) -> anyhow::Result<()> {
    ensure!(args.dir.is_dir(), "{} is not a folder", args.dir.display());
    let listener = listen(&args.listen).with_context(|| format!("cannot listen on {}", args.listen))?;
    let store = Arc::new(Store {
        dir: args.dir.clone(),
        latency: Duration::from_millis(args.latency_ms),
        stats: Stats::default(),
        uploads: AtomicU64::new(0),
    });
    let mut out = std::io::stdout();
    // Whoever started the server may have closed its end; the server works all the same.
    writeln!(out, "listening on http://{}", listener.local_addr()?).and_then(|()| out.flush()).ok();
    for connection in listener.incoming().flatten() {
        let store = store.clone();
        let thread = std::thread::Builder::new().name("connection".into()).stack_size(STACK_BYTES);
        // A client that goes away needs no answer.
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
                exchange.answer(response.with_body(Body::Text(self.stats.to_json())), None)?;
                continue;
            }
            let response = match self.answer(&request, &mut exchange) {
                Ok(response) => response,
                Err(error) => Response::from_io_error(&error),
            };
            exchange.skip_body()?;
            std::thread::sleep(self.latency);
            exchange.answer(response, Some(&self.stats))?;
            if !request.keep_alive {
                break;
            }
        }
        Ok(())
    }

    /// Does what a request asks for.
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

/// Whether a bucket or key stays inside of the folder and has no parts that a file system would change.
fn is_safe(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !part.is_empty() && !part.starts_with('.'))
}
