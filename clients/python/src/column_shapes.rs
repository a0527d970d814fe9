//! The NumPy arrays that columns become, for the Python package.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use stoker_columns::{NumpyShape, Rows, SmallFloat, kind_of};

use crate::arrow_import;

/// The keys of the `ColumnShape` mapping in `_native.pyi`.
#[derive(IntoPyObject)]
pub(crate) struct ColumnShape<'py> {
    name: String,
    kind: &'static str,
    dtype: Option<String>,
    shape: Bound<'py, PyTuple>,
    nulls: &'static str,
    small_float: Option<&'static str>,
    levels: usize,
    sizes: Option<Bound<'py, PyTuple>>,
    axes: Option<Bound<'py, PyTuple>>,
    names: Option<Bound<'py, PyTuple>>,
}

/// Returns the kind of each column of a schema, and the NumPy array that it becomes.
#[pyfunction]
pub(crate) fn column_shapes<'py>(schema: &Bound<'py, PyAny>) -> PyResult<Vec<ColumnShape<'py>>> {
    let py = schema.py();
    let schema = arrow_import::schema(schema)?;
    let shapes = schema.fields().iter().map(|field| {
        let kind = kind_of(field);
        let NumpyShape { dtype, shape, nulls, small_float, rows, names } = kind.numpy(field);
        let (levels, sizes, axes) = match rows {
            Rows::Fixed { axes } => (0, None, axes),
            Rows::Lists { levels } => (levels, None, None),
            Rows::Shaped { axes, sizes } => (0, Some(sizes), axes),
        };
        Ok(ColumnShape {
            name: field.name().clone(),
            kind: kind.name(),
            dtype,
            shape: PyTuple::new(py, shape)?,
            nulls: nulls.name(),
            small_float: small_float.map(SmallFloat::name),
            levels,
            sizes: sizes.map(|sizes| PyTuple::new(py, sizes)).transpose()?,
            axes: axes.map(|axes| PyTuple::new(py, axes)).transpose()?,
            names: names.map(|names| PyTuple::new(py, names)).transpose()?,
        })
    });
    shapes.collect()
}
