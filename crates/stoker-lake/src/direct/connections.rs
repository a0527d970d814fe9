//! Connections that wait for their next request.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Servers close connections that were idle for long: 15 s is less than any of them waits.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// Connections to one server that are kept: as many as the streams of a process have under way at most.
const KEPT_MAX: usize = 512;

const HTTP_PORT: u16 = 80;

/// The idle connections of a store. Cheap to clone; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    streams: HashMap<Authority, Vec<Idle>>,
    /// Whether a task closes those that nobody took for long.
    is_watched: bool,
}

#[derive(Debug)]
struct Idle {
    stream: TcpStream,
    since: Instant,
}

impl Connections {
    /// A connection that was used before; `None` when there is none.
    pub fn take(&self, authority: &Authority) -> Option<TcpStream> {
        let mut kept = self.kept.lock();
        let idle = kept.streams.get_mut(authority)?;
        let newest = idle.pop()?;
        if newest.since.elapsed() < IDLE_MAX {
            return Some(newest.stream);
        }
        idle.clear();
        None
    }

    /// Keeps a connection on which an answer came to its end.
    pub fn keep(&self, authority: &Authority, stream: TcpStream) {
        let mut kept = self.kept.lock();
        let idle = kept.streams.entry(authority.clone()).or_default();
        if idle.len() < KEPT_MAX {
            idle.push(Idle { stream, since: Instant::now() });
        }
        if !kept.is_watched
            && let Ok(runtime) = Handle::try_current()
        {
            kept.is_watched = true;
            runtime.spawn(close_idle(Arc::downgrade(&self.kept)));
        }
    }
}

/// Closes connections that nobody took for long, until there are none.
async fn close_idle(kept: Weak<Mutex<Kept>>) {
    loop {
        tokio::time::sleep(IDLE_MAX).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock();
        kept.streams.retain(|_, idle| {
            idle.retain(|connection| connection.since.elapsed() < IDLE_MAX);
            !idle.is_empty()
        });
        if kept.streams.is_empty() {
            kept.is_watched = false;
            return;
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
