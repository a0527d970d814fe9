//! Query parameters from Python values.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PySequence, PyString};
use stoker_types::{ErrorKind, ParamValue};

use crate::exceptions::error;

/// Parameters `$1`, `$2`, … from Python values, in order.
///
/// Sequences of numbers, among them NumPy arrays and PyTorch tensors, are vectors.
pub(crate) fn params(values: &[Bound<'_, PyAny>]) -> PyResult<Vec<ParamValue>> {
    values.iter().enumerate().map(|(index, value)| param(index + 1, value)).collect()
}

fn param(number: usize, value: &Bound<'_, PyAny>) -> PyResult<ParamValue> {
    if value.is_none() {
        return Ok(ParamValue::Null);
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(ParamValue::Bool(flag.is_true()));
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(ParamValue::Text(text.to_str()?.to_string()));
    }
    if value.cast::<PySequence>().is_ok()
        || value.getattr("ndim").is_ok_and(|ndim| ndim.extract::<usize>().is_ok_and(|n| n > 0))
    {
        let items = value.try_iter()?.map(|item| item?.extract::<f64>()).collect::<PyResult<Vec<_>>>();
        return items.map(ParamValue::Vector).map_err(|_| unsupported(number, value));
    }
    if value.get_type().name()?.to_str()?.starts_with("bool") {
        return Ok(ParamValue::Bool(value.is_truthy()?));
    }
    if let Ok(integer) = value.extract::<i64>() {
        return Ok(ParamValue::Int(integer));
    }
    value.extract::<f64>().map(ParamValue::Float).map_err(|_| unsupported(number, value))
}

fn unsupported(number: usize, value: &Bound<'_, PyAny>) -> PyErr {
    let class = value.get_type().to_string();
    let message = format!(
        "parameter ${number} has the unsupported type {class}; \
         use None, bool, int, float, str or a sequence of numbers"
    );
    error(value.py(), ErrorKind::InvalidRequest, &message)
}
