//! A training batch for Python.

use std::sync::Arc;

use arrow_array::UInt64Array;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stoker_types::Share;

use crate::arrow_export::ArrowArray;

/// One rank's rows of one global batch.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Batch {
    data: Py<ArrowArray>,
    /// The step, epoch, position and row addresses of the batch.
    #[pyo3(get)]
    place: Py<BatchPlace>,
}

/// The identity of a batch's rows: their addresses, step, epoch and position, without the columns.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct BatchPlace {
    row_addrs: Vec<Arc<UInt64Array>>,
    /// The substituted rows, one entry each: the row's index in the batch, the addresses of the bad row that it
    /// replaces, and what is wrong with that bad row.
    #[pyo3(get)]
    substituted: Vec<(usize, Vec<u64>, String)>,
    /// The zero-based number of the global batch, counted from the position where the epoch or the resume began.
    #[pyo3(get)]
    step: u64,
    /// The epoch.
    #[pyo3(get)]
    epoch: u64,
    /// The first position of the order after this global batch.
    #[pyo3(get)]
    position: u64,
    /// The number of rows that are not padding; these rows come first.
    #[pyo3(get)]
    num_valid: usize,
    /// The number of rows, padding included.
    #[pyo3(get)]
    num_rows: usize,
    share: Share,
}

impl Batch {
    /// Wraps a batch of the engine; `share` says which rows of the global batch it holds.
    pub(crate) fn try_new(py: Python<'_>, batch: stoker_stream::Batch, share: Share) -> PyResult<Self> {
        let bad = batch.substituted.into_iter().map(|found| (found.row, found.row_addrs, found.reason));
        let place = BatchPlace {
            row_addrs: batch.row_addrs.into_iter().map(|addrs| Arc::new(UInt64Array::from(addrs))).collect(),
            substituted: bad.collect(),
            step: batch.step,
            epoch: batch.cursor.epoch,
            position: batch.cursor.position,
            num_valid: batch.num_valid,
            num_rows: batch.data.num_rows(),
            share,
        };
        Ok(Self { data: Py::new(py, ArrowArray::from_batch(batch.data))?, place: Py::new(py, place)? })
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
}

#[pymethods]
impl BatchPlace {
    /// Returns the row addresses: one array for each table that supplies rows, with one address per row of the batch.
    fn row_addrs(&self, py: Python<'_>) -> PyResult<Vec<Py<ArrowArray>>> {
        let array = |addrs: &Arc<UInt64Array>| Py::new(py, ArrowArray::from_values(addrs.clone()));
        self.row_addrs.iter().map(array).collect()
    }

    /// Maps indices of rows in the batch to their positions in the order of the epoch.
    fn positions(&self, rows: Vec<u64>) -> Vec<u64> {
        rows.into_iter().map(|row| self.share.position(row)).collect()
    }
}
