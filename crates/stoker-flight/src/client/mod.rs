//! The client: one interface to an engine in this process and to servers.

mod batch_assembler;
mod channel;
mod connect;
mod connection;
mod counters;
mod decode_message;
mod decode_stage;
mod do_get;
pub(crate) mod grpc;
mod handle;
mod image_columns;
mod image_substitutes;
mod interleave;
pub(crate) mod local_answers;
mod local_lake;
pub(crate) mod message_reader;
mod patience;
mod remote_lake;
mod remote_sql;
mod remote_stream;
mod row_patience;
mod rows_beside;
mod runs;
mod sample_stream;
mod wait_clock;

pub use connect::{ConnectOptions, connect, reconnect};
pub use connection::{Connection, SqlResult, TableInfo};
pub use handle::StreamHandle;
pub use image_columns::DecodeOptions;
pub use local_lake::LocalLake;
pub use remote_lake::RemoteLake;
pub use sample_stream::SampleStream;
