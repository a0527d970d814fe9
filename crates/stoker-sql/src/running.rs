//! The limits of a query while it is planned and run, and its cancellation.
//!
//! ```text
//! Permits (a fair queue) ─► Activity (of stoker-functions): live while a client waits for the query; rules check it
//!                     └──► QueryPool: the query's share of the engine's memory
//!                     └──► rows: limits on seconds, rows and bytes of the result
//! ```

mod expanded;
mod joins;
mod limits;
mod permits;
mod query_pool;
mod rows;
mod rules;
mod windows;

pub(crate) use expanded::check_expanded;
pub(crate) use joins::InterruptibleJoins;
pub use limits::QueryLimits;
pub(crate) use permits::Permits;
pub use permits::QueueStatus;
pub(crate) use query_pool::QueryPool;
pub(crate) use rows::{RowLimits, run};
pub(crate) use rules::{InterruptibleAnalyzer, InterruptibleOptimizer, InterruptiblePhysical};
pub(crate) use windows::HoldWindows;
