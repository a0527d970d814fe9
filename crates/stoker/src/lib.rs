//! Stoker: query a lake, pin the rows to a snapshot, and stream them as sharded, shuffled record batches.
//!
//! ```text
//! connect("…") ─► Connection ─┬─ LocalLake    the engine in this process
//!                             └─ RemoteLake   servers, over Arrow Flight
//! Connection::plan_stream ─► StreamHandle ─open(slice)─► SampleStream ─next─► Batch
//!                                └─► Session ─fetch─► Fetched: epoch after epoch, with a progress that can be saved
//! ```
//!
//! This is the crate that Rust programs add. The engine in this process and servers answer the same calls. A program that
//! reads through servers only may add `stoker-client` instead, which has no engine.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow_array::{Int64Array, RecordBatch};
//! use arrow_schema::{DataType, Field, Schema};
//! use stoker::{
//!     BatchSize, Batching, CommitMode, ConnectOptions, LastBatch, LocalLake, ReadOptions, Slice, StreamOptions, TableName,
//!     Topology, WriteOptions, connect,
//! };
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let connection = connect("memory://", &ConnectOptions::default()).await?;
//!
//! // Write a table of 100 rows.
//! let lake = LocalLake::of(&connection).ok_or("a server")?.lake();
//! let (name, schema) = (TableName::try_new("numbers")?, Schema::new(vec![Field::new("id", DataType::Int64, false)]));
//! let rows = RecordBatch::try_new(schema.into(), vec![Arc::new(Int64Array::from_iter_values(0..100))])?;
//! let mut writer = lake.writer(&name, &rows.schema(), false, WriteOptions::default()).await?;
//! writer.write(&rows).await?;
//! let (schema, fragments) = (writer.schema(), writer.finish().await?);
//! lake.commit(&name, &schema, CommitMode::Create, fragments, None).await?;
//!
//! // Pin a query, and stream the share of rank 1 of 2.
//! let options = StreamOptions { seed: 7, ..StreamOptions::default() };
//! let stream = connection.plan_stream("SELECT id FROM numbers WHERE id % 2 = 0", &[], &options).await?;
//! let batching = Batching { size: BatchSize::PerRank(8), last: LastBatch::Uneven };
//! let slice = Slice::new(Topology::try_new(1, 2)?, batching, 0);
//! let (mut batches, mut num_rows) = (stream.open(&slice, &ReadOptions::default()).await?, 0);
//! while let Some(batch) = batches.next().await? {
//!     num_rows += batch.num_valid;
//! }
//! assert_eq!(num_rows, 25);
//! # Ok(())
//! # }
//! ```

mod cache;
mod commit_key;
mod connect;
mod local_answers;
mod local_lake;
mod local_plan;
mod local_reads;
mod local_writer;

pub use cache::open_cache;
pub use connect::{ConnectOptions, connect, reconnect};
pub use local_answers::{find_rows, read_beside};
pub use local_lake::LocalLake;
pub use local_reads::local_reads;
pub use stoker_batch::{Batch, Substitution};
pub use stoker_client::{ClientOptions, RemoteLake};
pub use stoker_lake::{CommitMode, StorageOptions, WriteOptions};
pub use stoker_net::{Secret, warn_of_readers};
pub use stoker_session::{
    ColumnDecoder, Connection, DecodeOptions, Error, Lake, Result, RowWriter, SampleStream, Session, SqlResult,
    StreamHandle, TableInfo, session,
};
pub use stoker_statements::{
    BulkInsert, ColumnJob, ColumnMode, ColumnPlan, ComputedColumn, IfMissing, IfPresent, refuse_view,
};
pub use stoker_types::{
    BatchSize, Batching, LastBatch, ParamValue, PlanRequest, Query, ReadOptions, ShuffleMode, Slice, SnapshotRef,
    StreamOptions, TableName, Topology, WriteMode, WriteRequest,
};
