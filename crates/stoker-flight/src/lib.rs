//! The Flight service, and the client's side of the protocol.
//!
//! ```text
//! connect("…") ─► Connection ─┬─ Local(Engine)            the engine in this process
//!                             └─ Remote(RemoteLake) ─Flight─► serve(Engine)
//! Connection::plan_stream ─► StreamHandle ─open(slice)─► SampleStream ─next─► Batch
//! ```
//!
//! Servers are stateless: a ticket carries all that a replica with the same keys needs. Clients reconnect with their step.

mod client;
mod convert;
mod decode;
mod encode;
mod error;
mod server;
mod status;
mod ticket;

/// The messages of `proto/stoker/v1/stream.proto`.
#[expect(missing_docs, reason = "generated; documented in the .proto file")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/stoker.v1.rs"));
}

pub use client::{ConnectOptions, Connection, RemoteLake, SampleStream, SqlResult, StreamHandle, TableInfo, connect};
pub use error::{Error, Result};
pub use server::{ServerConfig, TicketKey, TlsFiles, serve};
pub use ticket::TicketSigner;

#[cfg(test)]
mod tests;
