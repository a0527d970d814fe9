//! Relations about a lake and its tables: those of `information_schema`, and table functions such as `versions(t)`. Views
//! are stored here too.
//!
//! ```text
//! SHOW …, DESCRIBE ─► (stoker-dialect) a query over these relations ─► CatalogRelation ─► rows, once the query runs
//! ```
//!
//! The names of tables come from one listing. A table is opened for its columns only, and only if no predicate on the
//! names excludes it.

mod functions;
mod names;
mod of_lake;
mod of_table;
mod relation;
mod views;

pub use functions::table_functions;
pub use of_lake::LakeView;
pub use of_table::TableView;
pub use relation::CatalogRelation;
pub use views::{create_view, delete_view, replace_view, view_names, view_query};

/// The schema of the relations about the lake.
pub const INFORMATION_SCHEMA: &str = "information_schema";
