//! The path from a listening socket to requests, with limits for clients that are silent, slow or hostile.
//!
//! ```text
//! Listener ─► accept ─► permit ──► TLS ─► MeteredIo ─► hyper's HTTP/2 ─► service
//!               │         │                  │             │
//!           backoff     Permits           FrameMeter    StreamTasks ─► Peer
//! ```
//!
//! Every connection has a [`Peer`], which records the requests of its client so far. Connections without an
//! authenticated request are displaced first; see [`Permits`](crate::permits::Permits) for the rules.

mod accept;
mod connection;
mod frame_meter;
mod metered_io;
mod peer;
mod response;
mod stream_tasks;

use std::time::Duration;

pub(crate) use accept::{Edge, accept_connections, raise_file_limit};
pub(crate) use peer::{Address, Peer};
pub(crate) use response::{Respond, Responding, ResponseBody};
pub(crate) use stream_tasks::Reset;

/// The timeouts of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimes {
    /// The deadline from the first byte of a connection to the headers of its first request.
    pub handshake: Duration,
    /// The time without a request after which a connection is closed.
    pub idle: Duration,
    /// The time without a frame after which the server pings the client.
    pub keepalive: Duration,
    /// The time without progress after which a response is cut.
    pub stall: Duration,
}
