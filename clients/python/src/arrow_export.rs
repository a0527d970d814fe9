//! Exports Arrow data to Python through the Arrow C data interface, without copying.
//!
//! The structures are defined in <https://arrow.apache.org/docs/format/CDataInterface.html>, the capsules in
//! <https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html>.

use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::{Field, Schema, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::exceptions::Raise;

/// An array, or a record batch as an array of structs, that any Arrow library can import.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct ArrowArray {
    array: ArrayRef,
    schema: ExportedSchema,
}

/// A schema that any Arrow library can import.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct ArrowSchema(pub(crate) SchemaRef);

enum ExportedSchema {
    Columns(SchemaRef),
    Item(Field),
}

impl ArrowArray {
    /// Wraps a record batch, which Python sees as an array of structs.
    pub(crate) fn from_batch(batch: RecordBatch) -> Self {
        let schema = ExportedSchema::Columns(batch.schema());
        Self { array: std::sync::Arc::new(StructArray::from(batch)), schema }
    }

    /// Wraps a single array without nulls.
    pub(crate) fn from_values(array: ArrayRef) -> Self {
        let field = Field::new("", array.data_type().clone(), false);
        Self { array, schema: ExportedSchema::Item(field) }
    }
}

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema=None))]
    pub(crate) fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The specification lets a producer ignore the requested schema and return the data in its own schema.
        let _ = requested_schema;
        let schema = match &self.schema {
            ExportedSchema::Columns(schema) => schema_capsule(py, schema)?,
            ExportedSchema::Item(field) => capsule(py, FFI_ArrowSchema::try_from(field).raise(py)?)?,
        };
        let array = FFI_ArrowArray::new(&self.array.to_data());
        let array = PyCapsule::new(py, array, Some(c"arrow_array".to_owned()))?;
        PyTuple::new(py, [schema, array])
    }

    fn __len__(&self) -> usize {
        self.array.len()
    }
}

#[pymethods]
impl ArrowSchema {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        schema_capsule(py, &self.0)
    }
}

fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    capsule(py, FFI_ArrowSchema::try_from(schema).raise(py)?)
}

fn capsule(py: Python<'_>, schema: FFI_ArrowSchema) -> PyResult<Bound<'_, PyCapsule>> {
    PyCapsule::new(py, schema, Some(c"arrow_schema".to_owned()))
}
