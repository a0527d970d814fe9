//! Sessions and streams over a lake, wherever the lake is.
//!
//! ```text
//! Connection(dyn Lake) ──plan_stream──► StreamHandle(dyn PlannedStream) ──open(slice)──► SampleStream(dyn BatchSource)
//!                                             └─► Session ─fetch─► Fetched: epoch after epoch, with a progress
//!                                                                  that can be saved
//! ```
//!
//! A lake implements three traits: [`Lake`] answers calls and plans streams, [`PlannedStream`] opens them, and
//! [`BatchSource`] delivers their batches. The crates `stoker` and `stoker-client` have one implementation each, of a
//! lake in this process and of one behind servers. All that holds for both is here: retries of calls, decoding of columns
//! with substitutes for bad rows, receipts, run logs, and the [`Session`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod batch_source;
mod bucket_batches;
mod connection;
mod decode;
mod error;
mod lake;
mod pack_batches;
mod patience;
mod row_writer;
mod runs;
mod sample_stream;
pub mod session;
mod stream_handle;
mod wait_clock;
mod write_key;

pub use batch_source::BatchSource;
pub use connection::{Connection, SqlResult, TableInfo};
pub use decode::{
    AudioOptions, ColumnDecoder, CustomDecoder, DecodeOptions, ImageOptions, LoadDecoder, SavedDecoder, TensorDecoder,
    VideoOptions,
};
pub use error::{Error, LowerError, Result};
pub use lake::{Lake, PlannedStream, StreamSource};
pub use patience::{Patience, Waits};
pub use row_writer::RowWriter;
pub use sample_stream::SampleStream;
pub use session::Session;
pub use stream_handle::StreamHandle;
pub use wait_clock::WaitClock;
pub use write_key::new_write_key;

#[cfg(test)]
mod tests;
