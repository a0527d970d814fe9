//! A lake behind servers, over Arrow Flight.
//!
//! ```text
//! connect("grpc://a:50051,b:50051") ─► Connection(RemoteLake) ─┬─ calls, plans ──tonic──► any server
//!                                                             └─ DoGet ──a connection each──► batches
//! ```
//!
//! Servers are stateless: a ticket carries all that any replica with the same keys needs. When its server fails, a
//! client asks any other server for the remaining batches, beginning with the first step that is not complete. This
//! crate has no query engine and no storage.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod batch_assembler;
mod channel;
mod client_options;
mod counters;
mod decode_message;
mod do_get;
mod grpc;
mod message_reader;
mod remote_lake;
mod remote_plan;
mod remote_sql;
mod remote_stream;
mod remote_write;
mod row_patience;
mod target;

pub use client_options::ClientOptions;
pub use grpc::{CALL_HEADERS, call, grpc_frame};
pub use remote_lake::RemoteLake;
pub use target::{LakeOptionsGiven, names_servers};

use stoker_clock::Environment;
use stoker_net::Address;
use stoker_session::{Connection, Error, Patience, Result};

/// Connects to servers. A server is `grpc://host:port`, `grpc+tls://host:port` or, on this host, `unix:///path`
/// (`grpc+unix:///path`). Commas separate several servers, and a scheme also applies to the addresses after it.
///
/// # Errors
/// A malformed target, or one that names no server; no server that takes a connection within five seconds each.
pub async fn connect(target: &str, options: &ClientOptions) -> Result<Connection> {
    connect_in(target, options, Environment::default()).await
}

/// As [`connect`], with other time and random numbers than the machine's. They decide when calls are repeated, and when
/// their deadlines and retry budgets end. The timeouts of the connection itself, and the timer by which it ends a call at
/// its deadline, go by the machine's clock.
///
/// # Errors
/// As for [`connect`].
pub async fn connect_in(target: &str, options: &ClientOptions, environment: Environment) -> Result<Connection> {
    let patience = Patience::new(options.retry_budget).with_environment(environment);
    let lake = open(target, options, patience)?;
    lake.reach().await?;
    Ok(Connection::new(lake))
}

/// As [`connect`], for a target to which another process was connected, or this process before a fork. It sends no
/// request, and even the first call retries until a server answers or the retry budget ends.
///
/// # Errors
/// A malformed target, or one that names no server.
pub fn reconnect(target: &str, options: &ClientOptions) -> Result<Connection> {
    Ok(Connection::new(open(target, options, Patience::with_known(options.retry_budget))?))
}

fn open(target: &str, options: &ClientOptions, patience: Patience) -> Result<RemoteLake> {
    let addresses = Address::parse_all(target).map_err(stoker_wire::Error::from)?;
    let none = || Error::invalid(format!("{target:?} names no server: a server is grpc://host:port"));
    RemoteLake::try_new(&addresses.ok_or_else(none)?, options, patience)
}

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
