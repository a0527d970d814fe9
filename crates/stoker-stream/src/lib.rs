//! The pipeline that turns a pinned sample query into batches.
//!
//! ```text
//! StreamPlan (query, row set, order options) ──open(slice)────────► BatchStream ──next──► Batch
//!                                            ──open_parts(slice)──► PartStream ───next──► Part
//!
//! positions of a unit ─order─► ordinals ─row set─► addresses ─chunk scan─► slots of the parts that want the rows
//!        (planner task, bounded by the stream's quota of the budget)        (two to four units at once)
//! ```
//!
//! A *part* is a run of consecutive rows of a batch, in memory of its own. Where a batch is wanted as a whole, it is
//! one part. A *unit* is a run of positions that is read at once: a window of the order where rows are shuffled inside
//! windows and best read by blocks, otherwise about 8 MiB, or 4 MiB per reading thread for local files. The budget cuts
//! units that do not fit. Rows of dense columns are read from storage directly into their buffer slots in their part.

#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod abort_on_drop;
mod bad_row_log;
mod batch_stream;
mod blocks;
mod cleanup;
mod clips;
mod depth;
mod epoch_rows;
mod error;
mod forget_runs;
mod found_rows;
mod light;
mod light_blocks;
mod nulls;
mod open_streams;
mod options;
mod part_builder;
mod part_plan;
mod part_stream;
mod phase;
mod plan;
mod planner;
mod read;
mod removed;
mod resident;
mod resources;
mod reweigh;
mod rows_beside;
mod run;
mod run_log;
mod source;
mod spans;
mod substitute;
mod unit;
mod unit_clock;
mod verify;

pub use bad_row_log::log_bad_rows;
pub use batch_stream::BatchStream;
pub use cleanup::{CleanedStreams, clean_streams};
pub use error::{Error, Result};
pub use forget_runs::{ForgottenRuns, forget_runs};
pub use part_stream::PartStream;
pub use plan::StreamPlan;
pub use resources::Resources;
pub use reweigh::WeightHistory;
pub use run::own_run;
pub use run_log::{log_run, run_entries};
pub use verify::verify;

#[cfg(test)]
mod tests;
