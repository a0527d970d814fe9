//! HTTP/1.1 GET requests whose response bodies stay in their sockets until the caller reads them.
//!
//! ```text
//! request_head ──► Client::send ──► Exchange ─┬─► into_body ──► SocketBody::read(slices)
//!                  pool of connections        └─► whole: a small body, such as the description of an error
//! ```

mod body;
mod client;
mod connections;
mod head;
mod low_water;
mod stream;

pub use body::{SocketBody, fill};
pub use client::{Client, Exchange, Failure, Timeouts};
pub use head::request_head;

#[cfg(test)]
mod tests;
