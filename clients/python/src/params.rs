//! Converts Python values to query parameters.

use arrow_array::{Array, ArrayRef, RecordBatchReader, new_null_array};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyList, PyString};
use stoker_dialect::numbered;
use stoker_types::{ArrowParam, ErrorKind, ParamValue};

use crate::arrow_import;
use crate::exceptions::{Raise, error};

/// Converts Python values to the parameters `$1`, `$2`, …, in this order.
///
/// The Python module `stoker._params` defines which SQL type each Python type becomes. Lists of numbers, NumPy arrays
/// and PyTorch tensors become vectors.
pub(crate) fn params(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<ParamValue>> {
    values.iter().enumerate().map(|(index, value)| param(index + 1, value)).collect()
}

/// Returns the stored form of parameters, as JSON; equal parameters have equal JSON.
#[pyfunction]
pub(crate) fn params_json(py: Python<'_>, values: Vec<Bound<'_, PyAny>>) -> PyResult<String> {
    serde_json::to_string(&params(&values)?).map_err(|source| error(py, ErrorKind::Internal, &source.to_string()))
}

/// Returns a query with numbers in place of its named placeholders (`$name`), and the names: first that of `$1`.
#[pyfunction]
pub(crate) fn numbered_params(py: Python<'_>, sql: &str) -> PyResult<(String, Vec<String>)> {
    let query = numbered(sql).map_err(|source| error(py, ErrorKind::InvalidRequest, &source))?;
    Ok((query.sql, query.names))
}

/// Returns whether a text has placeholders without numbers, `?`, and the largest number of those with one.
#[pyfunction]
pub(crate) fn placeholders(sql: &str) -> (bool, u64) {
    stoker_dialect::placeholders(sql)
}

/// Whether a text is a statement that changes a lake, and no query.
#[pyfunction]
pub(crate) fn is_change(sql: &str) -> bool {
    stoker_dialect::is_change(sql)
}

fn param(number: usize, value: &Bound<'_, PyAny>) -> PyResult<ParamValue> {
    let py = value.py();
    let converted = py.import("stoker._params")?.getattr("converted")?.call1((value,)).and_then(|value| own(&value));
    converted.map_err(|reason| {
        let class = value.get_type().name().map_or_else(|_| "value".to_string(), |name| name.to_string());
        let message = format!("parameter ${number} of type {class}: {}", reason.value(py));
        error(py, ErrorKind::InvalidRequest, &message)
    })
}

/// Converts a value that `stoker._params.converted` returned.
fn own(value: &Bound<'_, PyAny>) -> PyResult<ParamValue> {
    if value.is_none() {
        return Ok(ParamValue::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(ParamValue::Bool(flag.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(ParamValue::Text(text.to_str()?.to_string()));
    }
    if let Ok(integer) = value.cast::<PyInt>() {
        return Ok(ParamValue::Int(integer.extract()?));
    }
    if let Ok(float) = value.cast::<PyFloat>() {
        return Ok(ParamValue::Float(float.value()));
    }
    if let Ok(vector) = value.cast::<PyList>() {
        return Ok(ParamValue::Vector(vector.extract()?));
    }
    ArrowParam::try_new(only_value(value)?).map(ParamValue::Arrow).raise(value.py())
}

/// Returns the only value of an Arrow table with one column.
fn only_value(table: &Bound<'_, PyAny>) -> PyResult<ArrayRef> {
    let mut reader = arrow_import::reader(table)?;
    let data_type = reader.schema().field(0).data_type().clone();
    let batch = reader.next().transpose().raise(table.py())?;
    Ok(batch.map_or_else(|| new_null_array(&data_type, 0), |batch| batch.column(0).slice(0, batch.num_rows())))
}
