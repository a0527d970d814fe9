//! Batches: what a stream delivers, and the memory that it is in.
//!
//! ```text
//! BufferPool ──memory──► Part … ──► Batch ──part──► ReceiptBuilder
//!     ▲                    │ reserved in
//!     └── MemoryBudget ◄───┘
//! ```
//!
//! The engine fills batches from storage, a client fills them from a socket. Everything here holds for both: how memory
//! is divided among streams and used again, which rows may replace bad rows, what a receipt records, and how the time
//! of a step is divided among its causes.

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod bad_share;
mod batch;
mod bucket_rows;
mod budget;
mod error;
mod free_memory;
mod interleave;
mod interleave_column;
mod memory;
mod memory_limit;
mod pack_columns;
mod page_choice;
mod part;
mod pool;
mod receipt;
mod row_memory;
mod rows_beside;
mod size;
mod slots;
mod stall_meter;
mod steps;
mod windows;

pub use bad_share::BadRowsMet;
pub use batch::{Batch, Substitution};
pub use bucket_rows::{BUCKET_ROW_ADDRS, BatchBuckets, bucket_row_schema, bucket_rows, bucket_schema};
pub use budget::{Held, MemoryBudget, Quota, SharedMemory};
pub use error::{Error, Result};
pub use interleave::interleave_batches;
pub use interleave_column::interleave_column;
pub use memory_limit::check_batches;
pub use pack_columns::{PACK_COLUMNS, PackColumns};
pub use part::Part;
pub use pool::{BufferPool, Pooled};
pub use receipt::ReceiptBuilder;
pub use row_memory::RowMemory;
pub use rows_beside::RowsBeside;
pub use size::{array_bytes, record_batch_bytes};
pub use slots::{SlotMut, Slots};
pub use stall_meter::StallMeter;
pub use steps::{BAD_ROWS_TABLE, RUN_LOG_TABLE, entry_slice, state_slice, step_entry};
pub use windows::{Window, WindowRow, Windows};

#[cfg(test)]
mod tests;
