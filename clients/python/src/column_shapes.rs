//! The NumPy arrays that columns become, for the Python package.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stoker_columns::{NumpyShape, kind_of};

use crate::arrow_import;

/// The keys of the `ColumnShape` mapping in `_native.pyi`.
#[derive(IntoPyObject)]
pub(crate) struct ColumnShape<'py> {
    name: String,
    kind: &'static str,
    dtype: Option<String>,
    shape: Bound<'py, PyTuple>,
    nulls: &'static str,
    bfloat16: bool,
}

/// Returns the kind of each column of a schema, and the NumPy array that it becomes.
#[pyfunction]
pub(crate) fn column_shapes<'py>(schema: &Bound<'py, PyAny>) -> PyResult<Vec<ColumnShape<'py>>> {
    let py = schema.py();
    let schema = arrow_import::schema(schema)?;
    let shapes = schema.fields().iter().map(|field| {
        let kind = kind_of(field);
        let NumpyShape { dtype, shape, nulls, bfloat16 } = kind.numpy(field);
        let shape = PyTuple::new(py, shape)?;
        Ok(ColumnShape { name: field.name().clone(), kind: kind.name(), dtype, shape, nulls: nulls.name(), bfloat16 })
    });
    shapes.collect()
}
