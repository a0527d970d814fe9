//! A column whose values Python computes.

use arrow_array::cast::AsArray;
use arrow_array::types::UInt64Type;
use arrow_array::{Array, RecordBatch};
use parking_lot::Mutex;
use pyo3::prelude::*;
use stoker_session::Connection;
use stoker_types::ErrorKind;

use crate::arrow_import::reader;
use crate::engine::{ColumnRequest, ColumnWork, Engine, OpenColumn};
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fork::PerProcess;
use crate::runtime::wait;

/// The work that is left: version, rows of the table, rows that are done, ranges of row addresses.
type Plan = (u64, u64, u64, Vec<(u64, u64)>);

/// A column that was begun. After an error it can only be closed; what it recorded stays in the lake for the next one.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct ColumnWriter {
    open: Mutex<PerProcess<Box<dyn OpenColumn>>>,
}

impl ColumnWriter {
    /// Begins a column.
    pub(crate) fn begin(
        py: Python<'_>,
        engine: &dyn Engine,
        connection: &Connection,
        request: &ColumnRequest,
    ) -> PyResult<Self> {
        let open = wait(py, engine.begin_column(connection, request))?.raise(py)?;
        Ok(Self { open: Mutex::new(PerProcess::new(open)) })
    }

    /// Calls a function with the open column, which no other thread uses meanwhile.
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(&mut Box<dyn OpenColumn>) -> PyResult<T>) -> PyResult<T> {
        let taken = self.open.lock().take();
        let Some(mut open) = taken else {
            return Err(error(py, ErrorKind::InvalidRequest, &"this column is closed, or another thread uses it"));
        };
        let done = work(&mut open);
        *self.open.lock() = PerProcess::new(open);
        done
    }
}

#[pymethods]
impl ColumnWriter {
    /// Finds the rows whose values are not known at the newest version; `None` if an earlier call committed the column.
    fn plan(&self, py: Python<'_>) -> PyResult<Option<Plan>> {
        let work = self.with(py, |open| wait(py, open.plan())?.raise(py))?;
        Ok(work.map(|ColumnWork { version, num_rows, num_done, ranges }| (version, num_rows, num_done, ranges)))
    }

    /// Writes rows: an Arrow stream of their values and, as the last column, their addresses as uint64.
    fn write(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut batches = reader(rows)?;
        self.with(py, |open| {
            while let Some(batch) = detached(py, || batches.next()) {
                let batch: RecordBatch = batch.raise(py)?;
                let last = batch.num_columns().saturating_sub(1);
                let addrs = batch.columns().last().and_then(|column| column.as_primitive_opt::<UInt64Type>());
                let Some(addrs) = addrs.filter(|addrs| addrs.null_count() == 0) else {
                    return Err(error(py, ErrorKind::InvalidRequest, &"the last column must have row ids as uint64"));
                };
                let values = batch.project(&(0..last).collect::<Vec<_>>()).raise(py)?;
                wait(py, open.write(addrs.values(), values))?.raise(py)?;
            }
            Ok(())
        })
    }

    /// Commits the column after all rows were written; `None` if the table changed meanwhile, so that it is planned again.
    fn commit(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.with(py, |open| wait(py, open.commit())?.raise(py))
    }

    /// Forgets what earlier calls computed.
    fn forget(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |open| wait(py, open.forget())?.raise(py))
    }

    /// Ends the work. What was recorded stays for the next call.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.open.lock().take();
        match taken {
            Some(open) => wait(py, open.abort()),
            None => Ok(()),
        }
    }
}
