//! The basic types of Stoker: identifiers, stream specifications, cursors, slices and error kinds.
//!
//! Everything here is plain data. Values are checked when they are parsed, so that every existing [`TableName`] and
//! [`Digest`] is valid. This crate contains no async code and no I/O.
//!
//! ```text
//! StreamSpec ──digest──► stream id ──┐
//!                                    ├─► Cursor (stream id, epoch, position) ──► StreamState (what a checkpoint keeps)
//! Slice (rank, batching, origin) ────┘
//! ```

#![warn(clippy::disallowed_methods)]
#![cfg_attr(test, expect(clippy::cast_possible_truncation, reason = "tests know their numbers"))]

mod arrow_param;
mod batching;
mod bucket_options;
pub mod calls;
mod catch_panic;
mod column_clip;
mod column_layout;
mod context;
mod cursor;
mod differences;
mod digest;
mod epoch_options;
mod error;
mod ipc;
mod kind;
mod message;
mod mixture;
mod moment;
mod name;
mod numbers;
mod order_options;
mod pack_options;
mod param;
mod plan_request;
mod query_options;
mod read_options;
mod receipt;
mod run_entry;
mod slice;
mod snapshot;
mod spec;
mod state;
mod statement;
mod stream_stats;
mod table_info;
mod write_request;

pub use arrow_param::ArrowParam;
pub use batching::{BatchSize, Batching, LastBatch, Topology};
pub use bucket_options::{BucketOptions, LongerRows};
pub use catch_panic::catch_panic;
pub use column_clip::{ClipStart, ColumnClip};
pub use column_layout::{ColumnLayout, Diagnosis, Finding, Verdict};
pub use context::{Context, Principal, Role};
pub use cursor::Cursor;
pub use digest::{Digest, DigestBuilder};
pub use epoch_options::EpochOptions;
pub use error::{Error, Result};
pub use ipc::{check_ipc_stream, encapsulated_schema, ipc_message};
pub use kind::{ErrorKind, HasKind};
pub use message::plain_message;
pub use mixture::{MIXTURE_VERSION, MixtureSegment, MixtureSpec, MixtureStop, SOURCES_MAX, slots_for};
pub use moment::Moment;
pub use name::{CATALOG, MAIN_BRANCH, PrincipalName, RunId, SCHEMA, TableName, TagName};
pub use numbers::{round_to_u32, to_micros, to_millis, to_nanos, to_usize};
pub use order_options::{Mixing, OrderOptions, ShuffleMode};
pub use pack_options::PackOptions;
pub use param::ParamValue;
pub use plan_request::{DELAY_LINE_BYTES, MixOptions, PlanRequest, Query, StreamOptions, WINDOW_BYTES};
pub use query_options::{OrderByDistance, QueryOptions, SqlOptions};
pub use read_options::{BadRows, BadShare, Compression, ReadOptions};
pub use receipt::{
    EpochVerdict, Positions, RECEIPT_VERSION, RECEIPT_VERSION_MIN, Receipt, ReceiptPart, Skipped, SubstitutedRow,
    row_hash,
};
pub use run_entry::{BadRowEntry, RunEntry, RunEvent};
pub use slice::{Share, Slice};
pub use snapshot::{Snapshot, SnapshotRef};
pub use spec::{
    BUCKET_VERSION, BucketSpec, PACK_VERSION, PackSpec, SPEC_VERSION, SourceSpec, StreamSpec, WEIGHT_VERSION,
    WeightSpec,
};
pub use state::{BatchLogEntry, ResumePoint, STATE_VERSION, StreamState};
pub use statement::{ProgressSink, StatementOutcome, StatementProgress};
pub use stream_stats::{IoTotals, Stalls, StreamStats};
pub use table_info::{BranchInfo, IndexInfo, VersionInfo};
pub use write_request::{WriteMode, WriteRequest};

#[cfg(test)]
mod tests;

/// Measures the memory that the targets of `tests/fuzz.rs` hold.
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: stoker_fuzz::Meter = stoker_fuzz::Meter;
