//! From a listening socket to requests, with limits for clients that are silent, slow or hostile.
//!
//! ```text
//! Listener ─► accept ─► a place ─► TLS ─► MeteredIo ─► hyper's HTTP/2 ─► service
//!               │         │                  │             │
//!           back-off    Places           FrameMeter    StreamTasks ─► Peer
//! ```
//!
//! Every connection has a [`Peer`], which knows what it showed so far. Connections without a request that was let in make room
//! for others first; see [`Places`](crate::server::places::Places) for the rules.

mod accept;
mod connection;
mod file_limit;
mod frame_meter;
mod metered_io;
mod peer;
mod stream_tasks;

use std::time::Duration;

pub(crate) use accept::{Edge, accept_connections};
pub(crate) use file_limit::raise_file_limit;
pub(crate) use peer::{Address, Peer};
pub(crate) use stream_tasks::Reset;

/// How long connections may take, and be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionTimes {
    /// From its first byte to the headers of its first request.
    pub handshake: Duration,
    /// Without a request.
    pub idle: Duration,
    /// Without a frame before it is asked whether it lives.
    pub keepalive: Duration,
    /// In which an answer must go on.
    pub stall: Duration,
}
