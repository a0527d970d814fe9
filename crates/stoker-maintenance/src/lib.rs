//! Looks after the tables of a lake: says how columns are stored and what that costs, and excludes bad rows.
//!
//! ```text
//! Table ──survey──► ColumnSurvey ─┬─describe──► ColumnLayout: how a column is stored
//!                                 └─doctor────► Diagnosis: the layouts, and findings with their remedies
//! LakeStore ──delete_rows──► DeletedRows ──quarantine──► Quarantined: a version without the bad rows
//! ```
//!
//! Each function is about one table. All of them stand on public functions of [`stoker_lake`], which reads the footers
//! of data files and makes the commits. [`describe`] also decodes some rows of compressed tensors, to measure the rate.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod decode_rate;
mod describe;
mod doctor;
mod quarantine;

pub use describe::describe;
pub use doctor::doctor;
pub use quarantine::{Quarantined, quarantine};

#[cfg(test)]
mod tests;
