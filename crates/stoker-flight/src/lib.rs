//! The Flight service, and the client's side of the protocol.
//!
//! ```text
//! connect("…") ─► Connection ─┬─ Local(LocalLake)         the engine in this process
//!                             └─ Remote(RemoteLake) ─Flight─► serve(Engine)
//! Connection::plan_stream ─► StreamHandle ─open(slice)─► SampleStream ─next─► Batch
//!                                └─► Session ─fetch─► Fetched: epoch after epoch, with a progress that can be saved
//! ```
//!
//! A batch travels as messages of about 2 MiB, each with the index of its first row in the batch. Both ends handle the
//! bodies of DoGet themselves, without tonic's codec: the server sends segments that point into the Arrow arrays, and
//! the client reads each value from the socket to its final address in the batch's memory.
//!
//! Servers are stateless: a ticket carries all that any replica with the same keys needs. When its server fails, a
//! client asks any other server for the remaining batches, beginning with the first step that is not complete.

mod beside_answer;
mod buffer_codec;
mod cache;
mod client;
mod convert;
mod decode;
mod encode;
mod error;
mod local_reads;
mod schema_text;
mod secret;
mod server;
pub mod session;
mod status;
mod ticket;
mod toml_file;
mod wire;
mod write_key;

/// The messages of `proto/stoker/v1/stream.proto`.
#[expect(missing_docs, reason = "generated; documented in the .proto file")]
#[expect(clippy::large_enum_variant, reason = "generated; made once per request")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/stoker.v1.rs"));
}

pub use client::{
    ConnectOptions, Connection, DecodeOptions, LocalLake, RemoteLake, SampleStream, SqlResult, StreamHandle, TableInfo,
    connect, reconnect,
};
pub use error::{Error, Result};
pub use secret::{Secret, warn_of_readers};
pub use server::{QuerySettings, ServerConfig, TicketKey, TlsFiles, serve};
pub use session::Session;
pub use ticket::TicketSigner;

#[cfg(test)]
mod tests;
