//! Connections that wait for their next request.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::net::TcpStream;

/// Servers close connections that were idle for long: 15 s is less than any of them waits.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Connections to one server that are kept: as many as the streams of a process have under way at most.
const KEPT_MAX: usize = 512;

const HTTP_PORT: u16 = 80;

/// The idle connections of a store. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    idle: Arc<Mutex<HashMap<Authority, Vec<Idle>>>>,
}

#[derive(Debug)]
struct Idle {
    stream: TcpStream,
    since: Instant,
}

impl Connections {
    /// A connection that was used before; `None` when there is none.
    pub fn take(&self, authority: &Authority) -> Option<TcpStream> {
        let mut idle = self.idle.lock();
        let kept = idle.get_mut(authority)?;
        let newest = kept.pop()?;
        if newest.since.elapsed() < IDLE_MAX {
            return Some(newest.stream);
        }
        kept.clear();
        None
    }

    /// Keeps a connection on which an answer came to its end.
    pub fn keep(&self, authority: &Authority, stream: TcpStream) {
        let mut idle = self.idle.lock();
        let kept = idle.entry(authority.clone()).or_default();
        if kept.len() < KEPT_MAX {
            kept.push(Idle { stream, since: Instant::now() });
        }
    }
}

/// A new connection.
pub(super) async fn connect(authority: &Authority) -> io::Result<TcpStream> {
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((host, authority.port_u16().unwrap_or(HTTP_PORT))).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
