//! One rank's share of an epoch, from Python.

use pyo3::prelude::*;
use stoker_types::{BatchSize, Batching, ErrorKind, LastBatch, Slice, Topology};

use crate::exceptions::{Raise, error};

/// The keys of the `SliceRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SliceRequest {
    rank: u32,
    world_size: u32,
    batch_size: Option<u64>,
    global_batch_size: Option<u64>,
    last_batch: String,
    epoch: u64,
    origin: u64,
    first_step: u64,
}

impl SliceRequest {
    /// Converts the request to a slice and validates it.
    pub(crate) fn to_slice(&self, py: Python<'_>) -> PyResult<Slice> {
        let invalid = |message: &str| Err(error(py, ErrorKind::InvalidRequest, &message));
        let size = match (self.batch_size, self.global_batch_size) {
            (Some(rows), None) => BatchSize::PerRank(rows),
            (None, Some(rows)) => BatchSize::Global(rows),
            _ => return invalid("give either batch_size or global_batch_size"),
        };
        let last = match self.last_batch.as_str() {
            "pad" => LastBatch::Pad,
            "drop" => LastBatch::Drop,
            "uneven" => LastBatch::Uneven,
            other => return invalid(&format!("last_batch is {other:?}; it must be \"pad\", \"drop\" or \"uneven\"")),
        };
        let slice = Slice {
            topology: Topology::try_new(self.rank, self.world_size).raise(py)?,
            batching: Batching { size, last },
            epoch: self.epoch,
            origin: self.origin,
            first_step: self.first_step,
        };
        slice.validate().raise(py)?;
        Ok(slice)
    }
}
