//! The record batches of a query, for Python.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_types::ErrorKind;

use crate::arrow_export::{ArrowArray, ArrowSchema};
use crate::exceptions::{Raise, error};
use crate::fork::PerProcess;
use crate::runtime::wait;

type Batches = BoxStream<'static, Result<RecordBatch, stoker_session::Error>>;

/// A running query. The query stops when its result is dropped and after an error.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct QueryResult {
    schema: SchemaRef,
    batches: Mutex<PerProcess<Batches>>,
}

impl QueryResult {
    /// Wraps the result of a planned query.
    pub(crate) fn new(result: stoker_session::SqlResult) -> Self {
        Self { schema: result.schema, batches: Mutex::new(PerProcess::new(result.stream)) }
    }
}

#[pymethods]
impl QueryResult {
    /// Returns the columns.
    #[getter]
    fn schema(&self) -> ArrowSchema {
        ArrowSchema(self.schema.clone())
    }

    /// Returns the next record batch, or `None` at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<ArrowArray>> {
        let taken = self.batches.lock().take();
        let Some(mut batches) = taken else {
            return Err(error(py, ErrorKind::InvalidRequest, &"the result of this query was read already"));
        };
        match wait(py, batches.next())? {
            Some(batch) => {
                let batch = batch.raise(py)?;
                *self.batches.lock() = PerProcess::new(batches);
                Ok(Some(ArrowArray::from_batch(batch)))
            }
            None => Ok(None),
        }
    }

    /// Stops the query.
    fn close(&self) {
        drop(self.batches.lock().take());
    }
}
