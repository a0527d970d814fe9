//! The server: a lake for clients over Arrow Flight.
//!
//! Servers are stateless: a ticket carries all that any replica with the same keys needs. A request passes `auth`, the
//! limits in `permits` and, for streams, the connection's metering in `edge`, before it reaches the lake. Each protocol
//! has a folder, its door: `flight` is the only one now.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod access_log;
mod admin;
mod answers;
mod auth;
mod authority_filter;
mod caller;
mod config;
mod edge;
mod exposure;
mod flight;
mod flight_sql;
mod heartbeat;
mod listener;
mod metrics;
mod permits;
mod place_filter;
mod plan_cache;
mod process;
mod query_settings;
mod query_threads;
mod reader_writes;
mod readiness;
mod request_id;
mod serve;
mod server_tls;
mod state;
mod thread_priority;
mod ticket_key;
mod toml_file;
mod totals;
mod unix_connection;
mod unix_socket;
mod watch;

pub use config::{ServerConfig, TlsFiles};
pub use flight_sql::clean_parameters;
pub use query_settings::QuerySettings;
pub use serve::serve;
pub use ticket_key::TicketKey;

#[cfg(test)]
mod tests;
