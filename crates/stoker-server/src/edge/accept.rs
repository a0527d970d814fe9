//! Accepts connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stoker_clock::Clock;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::connection::serve_connection;
use super::peer::{Address, Peer};
use super::{ConnectionTimes, Respond};
use crate::listener::{Accepted, Listener};
use crate::permits::{Permits, Standing};
use crate::server_tls::ServerTls;

/// The backoff after an error of `accept`: the pause doubles from the first of these durations to the second.
const WAIT_FIRST: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// The limit of open files that the server asks for, even if the system would allow more.
const FILES_MAX: u64 = 1 << 16;

/// The state that the connections of a server share.
pub(crate) struct Edge {
    pub respond: Respond,
    pub tls: Option<Arc<ServerTls>>,
    pub places: Permits<Address>,
    pub times: ConnectionTimes,
    pub clock: Clock,
    /// Cancelled when the server stops accepting connections and requests.
    pub stopping: CancellationToken,
}

/// Raises the limit of open files as far as the system allows it, to at most 65,536, and returns the resulting limit.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = rlimit::Resource::NOFILE.get()?;
    if soft >= FILES_MAX.min(hard) {
        return Ok(soft);
    }
    rlimit::increase_nofile_limit(FILES_MAX)
}

/// Accepts connections until the server stops, then waits until they have ended. Dropping the future cuts them.
pub(crate) async fn accept_connections(listener: Listener, edge: Arc<Edge>) {
    let mut connections = JoinSet::new();
    let mut wait = WAIT_FIRST;
    loop {
        let accepted = tokio::select! {
            () = edge.stopping.cancelled() => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(edge.times.stall + edge.times.keepalive) => accepted,
        };
        match accepted {
            Ok(accepted) => {
                wait = WAIT_FIRST;
                let (address, now) = (accepted.address(), edge.clock.now());
                // Without a permit, the connection is closed.
                let Ok(place) = edge.places.take(address, Standing::Unproven(now), now) else { continue };
                let peer = Arc::new(Peer::new(address, place, edge.clock.clone()));
                let edge = edge.clone();
                match accepted {
                    Accepted::Tcp(io, _) => connections.spawn(serve_connection(io, true, edge, peer)),
                    Accepted::Unix(io) => connections.spawn(serve_connection(io, false, edge, peer)),
                };
            }
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                // The connection stays in the system's queue, so without a pause the next call would fail at once.
                let made_room = edge.places.displace_unproven();
                tracing::warn!(%error, made_room, "cannot accept connections");
                edge.clock.sleep(wait).await;
                wait = (wait * 2).min(WAIT_MAX);
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Returns whether an error concerns only one connection, which ended before it was accepted:
/// <https://man7.org/linux/man-pages/man2/accept.2.html>.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, WouldBlock};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted | WouldBlock)
}
