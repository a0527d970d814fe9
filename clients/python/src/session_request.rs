//! How one rank reads a stream, from Python.

use std::time::Duration;

use pyo3::prelude::*;
use stoker_session::session::SessionOptions;
use stoker_types::{BadRows, BadShare, BatchSize, Batching, ErrorKind, LastBatch, ReadOptions, RunId, Topology};

use crate::compression::to_compression;
use crate::decode_request::DecodeRequest;
use crate::exceptions::{Raise, error};

/// The keys of the `SessionRequest` mapping in `_native.pyi`; `None` means the engine's default.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SessionRequest {
    rank: u32,
    world_size: u32,
    batch_size: Option<u64>,
    global_batch_size: Option<u64>,
    last_batch: String,
    memory_budget_bytes: Option<u64>,
    bad_rows: String,
    max_bad_share: Option<f64>,
    verify: bool,
    retry_budget_secs: Option<u64>,
    compression: Option<String>,
    run_id: Option<String>,
    decode: Option<DecodeRequest>,
    evaluation: bool,
    any_order_version: bool,
}

impl SessionRequest {
    /// Converts the request to options, which are not yet checked against a stream.
    pub(crate) fn to_options(&self, py: Python<'_>) -> PyResult<SessionOptions> {
        Ok(SessionOptions {
            topology: Topology::try_new(self.rank, self.world_size).raise(py)?,
            batching: self.to_batching(py)?,
            read: self.to_read(py)?,
            decode: self.decode.as_ref().map(|decode| decode.to_options(py)).transpose()?,
            evaluation: self.evaluation,
            run_id: self.run_id.as_ref().map(RunId::try_new).transpose().raise(py)?,
            any_order_version: self.any_order_version,
            opens_ahead: true,
        })
    }

    fn to_batching(&self, py: Python<'_>) -> PyResult<Batching> {
        let invalid = |message: &str| Err(error(py, ErrorKind::InvalidRequest, &message));
        let size = match (self.batch_size, self.global_batch_size) {
            (Some(rows), None) => BatchSize::PerRank(rows),
            (None, Some(rows)) => BatchSize::Global(rows),
            _ => return invalid("give either batch_size or global_batch_size"),
        };
        let Some(last) = LastBatch::parse(&self.last_batch) else {
            let given = &self.last_batch;
            return invalid(&format!("last_batch is {given:?}; it must be \"pad\", \"drop\" or \"uneven\""));
        };
        Ok(Batching { size, last })
    }

    fn to_read(&self, py: Python<'_>) -> PyResult<ReadOptions> {
        let defaults = ReadOptions::default();
        let Some(bad_rows) = BadRows::parse(&self.bad_rows) else {
            let message = format!("bad_rows is {:?}; it must be \"error\" or \"substitute\"", self.bad_rows);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        Ok(ReadOptions {
            bad_rows,
            max_bad_share: self.max_bad_share.map_or(Ok(defaults.max_bad_share), BadShare::try_new).raise(py)?,
            verify: self.verify,
            retry_budget: self.retry_budget_secs.map(Duration::from_secs),
            memory_budget_bytes: self.memory_budget_bytes.unwrap_or(defaults.memory_budget_bytes),
            compression: to_compression(py, self.compression.as_deref())?,
            ..defaults
        })
    }
}
