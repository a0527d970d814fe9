//! Looks after the tables of a lake: says how columns are stored, and what that costs.
//!
//! ```text
//! Table ──survey──► ColumnSurvey ─┬─describe──► ColumnLayout: how a column is stored
//!                                 └─doctor────► Diagnosis: the layouts, and findings with their remedies
//! ```
//!
//! Each function is about one table. All of them stand on public functions of [`stoker_lake`], which reads the footers
//! of data files.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod describe;
mod doctor;

pub use describe::describe;
pub use doctor::doctor;

#[cfg(test)]
mod tests;
