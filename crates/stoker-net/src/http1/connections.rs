//! A pool of idle connections.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::stream::Stream;

/// The longest idle time of a connection that is used again. Servers usually wait longer than this before they close
/// one.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// The maximum number of idle connections to one server: as many as the requests that a process may have in flight.
const KEPT_MAX: usize = 512;

/// The pool of a store's idle connections. Cheap to clone; clones share the connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Connections {
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    streams: HashMap<Authority, Vec<Idle>>,
    /// Whether a task is running that closes connections that were idle for too long.
    is_watched: bool,
}

#[derive(Debug)]
struct Idle {
    stream: Stream,
    since: Instant,
}

impl Connections {
    /// Takes the most recently used connection from the pool. Returns `None` when it has none, or only
    /// expired ones. A connection that the server closed, or on which bytes arrived that belong to no response, is dropped.
    pub fn take(&self, authority: &Authority) -> Option<Stream> {
        let mut kept = self.kept.lock();
        let idle = kept.streams.get_mut(authority)?;
        while let Some(mut newest) = idle.pop() {
            if newest.since.elapsed() >= IDLE_MAX {
                idle.clear();
                return None;
            }
            if newest.stream.is_silent() {
                return Some(newest.stream);
            }
        }
        None
    }

    /// Returns a connection to the pool after a response was read to its end.
    pub fn keep(&self, authority: &Authority, stream: Stream) {
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

/// Closes connections that have been idle for too long. Ends when the pool is empty.
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
