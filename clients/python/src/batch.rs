//! A training batch for Python.

use std::sync::Arc;

use arrow_array::UInt64Array;
use arrow_array::cast::AsArray;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stoker_batch::Windows;
use stoker_session::session::{BatchKey, Fetched};
use stoker_types::{Digest, Share, StreamSpec};

use crate::arrow_export::ArrowArray;
use crate::dlpack::TensorColumn;
use crate::stream_handle::pairs;

/// One rank's rows of one global batch.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct Batch {
    data: Py<ArrowArray>,
    /// The step, epoch, position and row addresses of the batch.
    #[pyo3(get)]
    place: Py<BatchPlace>,
    /// What a session needs to count the batch.
    pub(crate) key: BatchKey,
}

/// The name of a column, and a capsule with its tensor.
type NamedTensor<'a, 'py> = (&'a str, Option<Bound<'py, PyAny>>);

/// The identity of a batch's rows: their addresses, step, epoch and position, without the columns.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct BatchPlace {
    row_addrs: Vec<Arc<UInt64Array>>,
    spec: Arc<StreamSpec>,
    stream_id: Digest,
    share: Share,
    /// The substituted rows, one entry each: the row's index in the batch, the addresses of the bad row that it
    /// replaces, and what is wrong with that bad row.
    #[pyo3(get)]
    substituted: Vec<(usize, Vec<u64>, String)>,
    /// The zero-based number of the global batch, counted from the start of the training.
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
}

impl Batch {
    /// Wraps a batch of a session.
    pub(crate) fn try_new(py: Python<'_>, fetched: Fetched) -> PyResult<Self> {
        let Fetched { batch, share, step, key, spec } = fetched;
        let bad = batch.substituted.into_iter().map(|found| (found.row, found.row_addrs, found.reason));
        let place = BatchPlace {
            row_addrs: batch.row_addrs.into_iter().map(|addrs| Arc::new(UInt64Array::from(addrs))).collect(),
            spec,
            stream_id: batch.cursor.stream_id,
            share,
            substituted: bad.collect(),
            step,
            epoch: batch.cursor.epoch,
            position: batch.cursor.position,
            num_valid: batch.num_valid,
            num_rows: batch.data.num_rows(),
        };
        Ok(Self { data: Py::new(py, ArrowArray::from_batch(batch.data))?, place: Py::new(py, place)?, key })
    }
}

#[pymethods]
impl Batch {
    /// Whether this is the last batch of its epoch.
    #[getter]
    fn is_last(&self) -> bool {
        self.key.is_last
    }

    /// Returns the name of each column, and a DLPack capsule with its tensor, which shares the memory of the batch. Columns
    /// that are no numbers, or that have nulls, have `None`.
    fn tensors<'py>(&self, py: Python<'py>) -> PyResult<Vec<NamedTensor<'_, 'py>>> {
        let columns = self.data.get().array().as_struct();
        let mut tensors = Vec::with_capacity(columns.num_columns());
        for (field, array) in columns.fields().iter().zip(columns.columns()) {
            let capsule = TensorColumn::of(field).map(|tensor| tensor.export(py, array)).transpose()?;
            tensors.push((field.name().as_str(), capsule.flatten()));
        }
        Ok(tensors)
    }

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
    /// The stream id: 64 hexadecimal digits.
    #[getter]
    fn stream_id(&self) -> String {
        self.stream_id.to_string()
    }

    /// For each query, the tables that supply its rows, as pairs of table and version, in the order of row addresses.
    #[getter]
    fn row_tables(&self) -> Vec<Vec<(String, u64)>> {
        self.spec.sources.iter().map(|source| pairs(&source.tables)).collect()
    }

    /// Returns the row addresses: one array for each table that supplies rows, with one address per row of the batch.
    fn row_addrs(&self, py: Python<'_>) -> PyResult<Vec<Py<ArrowArray>>> {
        let array = |addrs: &Arc<UInt64Array>| Py::new(py, ArrowArray::from_values(addrs.clone()));
        self.row_addrs.iter().map(array).collect()
    }

    /// Returns, for indices of rows in the batch, the index of the mixture's query that each row comes from.
    fn sources(&self, rows: Vec<u64>) -> Vec<usize> {
        let windows = Windows::new(&self.spec, self.epoch);
        rows.into_iter().map(|row| windows.of(self.share.position(row)).row(0).source).collect()
    }
}
