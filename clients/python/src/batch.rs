//! A training batch for Python.

use std::sync::Arc;

use arrow_array::UInt64Array;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::arrow_export::ArrowArray;

/// One rank's rows of one global batch, with the position after it.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Batch {
    data: Py<ArrowArray>,
    row_addrs: Vec<Py<ArrowArray>>,
    /// The rows that stand for bad ones: the row's index, the addresses of the bad row, and what is wrong with it.
    #[pyo3(get)]
    substituted: Vec<(usize, Vec<u64>, String)>,
    /// The number of the global batch, counted from where the epoch or the resume began.
    #[pyo3(get)]
    step: u64,
    /// The epoch.
    #[pyo3(get)]
    epoch: u64,
    /// The position after this global batch.
    #[pyo3(get)]
    position: u64,
    /// Rows that are not padding; they come first.
    #[pyo3(get)]
    num_valid: usize,
    /// Rows in all.
    #[pyo3(get)]
    num_rows: usize,
}

impl Batch {
    /// Wraps a batch of the engine.
    pub(crate) fn try_new(py: Python<'_>, batch: stoker_stream::Batch) -> PyResult<Self> {
        let bad = batch.substituted.into_iter().map(|found| (found.row, found.row_addrs, found.reason));
        let substituted = bad.collect();
        let addrs = batch.row_addrs.into_iter().map(|addrs| {
            let array = ArrowArray::from_values(Arc::new(UInt64Array::from(addrs)));
            Py::new(py, array)
        });
        Ok(Self {
            row_addrs: addrs.collect::<PyResult<_>>()?,
            substituted,
            step: batch.step,
            epoch: batch.cursor.epoch,
            position: batch.cursor.position,
            num_valid: batch.num_valid,
            num_rows: batch.data.num_rows(),
            data: Py::new(py, ArrowArray::from_batch(batch.data))?,
        })
    }
}

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        self.data.get().__arrow_c_array__(py, requested_schema)
    }

    /// For each table that supplies rows, the row addresses, one per row of the batch.
    fn row_addrs(&self, py: Python<'_>) -> Vec<Py<ArrowArray>> {
        self.row_addrs.iter().map(|addrs| addrs.clone_ref(py)).collect()
    }
}
