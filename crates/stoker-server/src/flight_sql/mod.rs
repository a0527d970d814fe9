//! The door for Flight SQL, which drivers of ADBC, JDBC and ODBC speak.
//!
//! ```text
//! GetFlightInfo ── command ─┬─ statement, prepared statement ─► SqlTicket ─────┐
//!                           └─ catalog, schemas, tables … ────► CatalogTicket ─┴─► DoGet
//! DoAction ── CreatePreparedStatement ─► signed handle ─► DoPut ── parameters ─► handle with parameters
//! DoPut ── statement that changes the lake ─► the number of rows
//! ```
//!
//! It stands beside the commands of Stoker's own clients, in the same methods of Flight: a descriptor with a command of
//! Flight SQL is a `google.protobuf.Any`, which no `stoker.v1.Command` can be mistaken for. Handles and tickets are
//! signed and carry all that they stand for, so that any replica serves them.

mod actions;
mod catalog;
mod do_put;
mod info;
mod prepared;
mod running;

pub(crate) use actions::{ACTIONS, is_action};
pub(crate) use info::PlannedStatement;
pub use prepared::clean_parameters;
pub(crate) use running::{Running, RunningAnswer};
