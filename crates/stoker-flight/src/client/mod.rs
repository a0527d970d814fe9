//! The client's side: one interface to an engine in this process and to servers.

mod batch_assembler;
mod connect;
mod connection;
mod handle;
mod remote_lake;
mod remote_stream;
mod sample_stream;

#[cfg(test)]
pub(crate) use batch_assembler::{BatchAssembler, interleave_parts};
pub use connect::{ConnectOptions, connect};
pub use connection::{Connection, SqlResult, TableInfo};
pub use handle::StreamHandle;
pub use remote_lake::RemoteLake;
pub use sample_stream::SampleStream;
