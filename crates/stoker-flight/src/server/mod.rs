//! The server.

mod access_log;
mod admin;
mod answer_body;
pub(crate) mod authority_filter;
mod caller;
mod config;
mod do_action;
mod do_get;
mod edge;
mod flight_service;
mod get_flight_info;
mod heartbeat;
mod listener;
mod metrics;
mod output;
pub(crate) mod places;
mod plan_cache;
mod process;
mod readiness;
mod request_id;
mod serve;
mod service;
mod state;
mod totals;
mod unix_connection;
mod unix_socket;

pub use config::{ServerConfig, TicketKey, TlsFiles};
pub(crate) use do_action::{ActionRequest, ROWS_MAX, TableAnswer, schema_from_text};
pub use serve::serve;
