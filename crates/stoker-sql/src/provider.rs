//! Provides the tables of a lake as DataFusion relations.

mod layout;
mod relation;
mod scan_exec;

pub(crate) mod heavy;

pub(crate) use heavy::HeavyTable;
pub(crate) use layout::{Layout, OutputColumn, rows_per_batch};
pub(crate) use relation::{CarriedNames, Relation};
pub(crate) use scan_exec::{ScanExec, num_scanned_rows, split};
