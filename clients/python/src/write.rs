//! Writes Arrow data from Python as one new table version.

use arrow_array::RecordBatchReader;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use stoker_columns::{unencoded, unencoded_schema};
use stoker_session::{Connection, Error, RowWriter, Waits};
use stoker_types::{ErrorKind, TableName, WriteMode, WriteRequest};

use crate::arrow_import::reader;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::runtime::wait;

/// The keys of the `WriteRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PyWriteRequest {
    table: String,
    mode: String,
    rows_per_fragment_max: Option<u64>,
    page_bytes: Option<u64>,
    has_features: bool,
    key: Option<String>,
    /// Whether the data can be read more than once.
    is_repeatable: bool,
}

/// Why a write failed.
enum Failure {
    /// The lake.
    Lake(Error),
    /// The data, or an exception such as that of Ctrl-C.
    Python(PyErr),
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Failure::Python(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Lake(error)
    }
}

/// Writes all batches and commits them. Nothing is visible before the commit; an error leaves the table as it was.
///
/// A write under the caller's key that took effect before is not made again. If the answer of a server is lost, the server or
/// another one is asked whether the write took effect, and data that can be read again is sent again, under the same key, for
/// the retry budget.
pub(crate) fn write(connection: &Connection, data: &Bound<'_, PyAny>, given: PyWriteRequest) -> PyResult<u64> {
    let py = data.py();
    let (is_repeatable, key) = (given.is_repeatable, given.key.clone());
    let has_own_key = key.is_some();
    let request = wait(py, connection.with_write_key(given.to_request(py)?, key))?.raise(py)?;
    if has_own_key && let Some(version) = wait(py, connection.find_write(&request))?.raise(py)? {
        return Ok(version);
    }
    let patience = connection.patience();
    let (begun, mut waits) = (patience.clock().now(), Waits::default());
    loop {
        let failed = match write_once(py, connection, data, &request) {
            Ok(version) => return Ok(version),
            Err(Failure::Python(error)) => return Err(error),
            Err(Failure::Lake(failed)) => failed,
        };
        if connection.lake().is_local() || !failed.kind().is_transient() {
            return Err(failed).raise(py);
        }
        if let Some(version) = wait(py, connection.find_write(&request))?.raise(py)? {
            return Ok(version);
        }
        let left = patience.budget().saturating_sub(patience.clock().since(begun));
        if !is_repeatable || left.is_zero() {
            let key = request.key.as_ref().map_or("", |key| key.key.as_str());
            return Err(error(py, failed.kind(), &unfinished(&failed, is_repeatable, key)));
        }
        let pause = waits.pause(&patience.environment().random).min(left);
        // The sleep begins within the runtime.
        wait(py, async { patience.clock().sleep(pause).await })?;
    }
}

/// Describes a write that failed, and how it is repeated.
fn unfinished(failed: &Error, is_repeatable: bool, key: &str) -> String {
    let why = match is_repeatable {
        true => "",
        false => ", and the rows come from an iterator, which cannot be read again",
    };
    format!(
        "the rows are not in the table{why}: {failed}; write them again with key={key:?}, which writes them once even if the \
         server finishes the first attempt meanwhile"
    )
}

fn write_once(
    py: Python<'_>,
    connection: &Connection,
    data: &Bound<'_, PyAny>,
    request: &WriteRequest,
) -> Result<u64, Failure> {
    let mut batches = reader(data)?;
    let columns = unencoded_schema(&batches.schema());
    let mut writer = wait(py, connection.begin_write(request, &columns))??;
    if let Err(failed) = write_all(py, writer.as_mut(), &columns, &mut batches) {
        wait(py, writer.abort())?;
        return Err(failed);
    }
    Ok(wait(py, writer.finish())??)
}

fn write_all(
    py: Python<'_>,
    writer: &mut dyn RowWriter,
    columns: &SchemaRef,
    batches: &mut (impl RecordBatchReader + Send),
) -> Result<(), Failure> {
    // The reader may call back into Python, for which it takes the interpreter lock itself.
    while let Some(batch) = detached(py, || batches.next()) {
        let batch = unencoded(&batch.raise(py)?, columns).raise(py)?;
        wait(py, writer.write(batch))??;
    }
    Ok(())
}

impl PyWriteRequest {
    fn to_request(&self, py: Python<'_>) -> PyResult<WriteRequest> {
        let Some(mode) = WriteMode::parse(&self.mode) else {
            let modes = WriteMode::ALL.map(WriteMode::as_str).join(", ");
            let message = format!("mode {:?} is unknown; modes: {modes}", self.mode);
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        };
        Ok(WriteRequest {
            table: TableName::try_new(self.table.as_str()).raise(py)?,
            mode,
            rows_per_fragment_max: self.rows_per_fragment_max,
            page_bytes: self.page_bytes,
            has_features: self.has_features,
            key: None,
        })
    }
}
