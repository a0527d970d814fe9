//! The part of Flight SQL, which drivers of ADBC, JDBC and ODBC speak, that needs no lake.
//!
//! ```text
//! descriptor ──► command_of ──► statement, prepared statement: planned by the server
//!                           └─► question about the catalog: catalog_schema, catalog_answer, TableList
//! bound rows ──► rows_of ──► parameters        results ──► plain_batch ──► types that all clients read
//! ```
//!
//! The messages are those of arrow-flight. This crate knows no server and no lake: `stoker-server` has the methods of
//! Flight, and plans and signs.

mod basic_auth;
mod catalog;
mod command;
mod error;
#[cfg(test)]
mod fuzz;
mod parameters;
mod plain_types;
pub mod session_options;
mod sql_info;
mod type_info;

pub use basic_auth::token_of;
pub use catalog::{TableList, catalog_answer, catalog_schema};
pub use command::{command_name, command_of};
pub use error::{Error, Result};
pub use parameters::{ParameterMessages, RowMessages, rows_of};
pub use plain_types::{plain_batch, plain_schema};
pub use sql_info::ServerLimits;

/// The type of tables.
const TABLE: &str = "TABLE";

/// The type of views.
const VIEW: &str = "VIEW";

/// The maximum size in bytes of a message for clients of Flight SQL, whose usual limit is 16 MiB for a gRPC message with
/// its headers.
pub const MESSAGE_BYTES_MAX: usize = (16 << 20) - (64 << 10);

/// Measures the memory that the targets of `fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
