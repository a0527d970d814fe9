//! HTTP clients whose response bodies are read from the socket into the caller's memory.
//!
//! ```text
//! http1: request head ──► Connections (a pool) ──► response head ──► SocketBody::read(slices)
//! http2: Request ──► Server::connect ──► Connection::open ──► Connection::read(memory)
//!        one connection for one request
//! ```
//!
//! A general HTTP client hands out bodies in its own memory, which the caller must copy once more. Here the caller passes
//! the destination of the next bytes before they are read.
//!
//! This crate knows sockets, TLS and HTTP. It knows neither Arrow nor gRPC's status codes nor lakes: a response whose
//! status is an error is a response like any other.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod address;
mod error;
pub mod http1;
pub mod http2;
mod secret;
mod tls;
mod unix_path;

pub use address::Address;
pub use error::{Error, Result};
pub use secret::{SECRET_BYTES_MIN, Secret, warn_of_readers};
pub use tls::{Protocol, TlsFiles, choose_ciphers, client_config};
pub use unix_path::UnixPath;

/// Measures the memory that the targets of the `fuzz.rs` files hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
