//! The protocol between clients and servers: messages, tickets and statuses.
//!
//! ```text
//! Part ──encode──► messages of about 2 MiB ──socket──► decode ──► Batch
//! TicketBody ──TicketSigner::sign──► bytes ──TicketSigner::verify──► TicketBody
//! error ──status──► gRPC status with the exact kind ──► Error::Remote
//! ```
//!
//! A batch travels as messages of about 2 MiB, each with the index of its first row in the batch. Both ends handle the
//! bodies of DoGet themselves, without tonic's codec: the server sends segments that point into the Arrow arrays, and
//! the client reads each value from the socket to its final address in the batch's memory.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

pub mod beside_answer;
pub mod buffer_codec;
pub mod convert;
pub mod decode;
pub mod encode;
mod error;
pub mod protocol;
pub mod status;
mod ticket;
pub mod written_rows;

/// The messages of `proto/stoker/v1/stream.proto`.
#[expect(missing_docs, reason = "generated; documented in the .proto file")]
#[expect(clippy::large_enum_variant, reason = "generated; made once per request")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/stoker.v1.rs"));
}

pub use error::{Error, Result};
pub use ticket::TicketSigner;

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
