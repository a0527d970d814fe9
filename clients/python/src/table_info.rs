//! A table at a pinned version, for Python.

use std::collections::BTreeMap;

use pyo3::prelude::*;

use crate::arrow_export::ArrowSchema;

/// The properties of a table at one version.
#[pyclass(module = "stoker._native", frozen)]
pub(crate) struct TableInfo {
    /// The table's name.
    #[pyo3(get)]
    name: String,
    /// The pinned version.
    #[pyo3(get)]
    version: u64,
    /// The number of rows that are not deleted.
    #[pyo3(get)]
    num_rows: u64,
    /// The Arrow schema.
    #[pyo3(get)]
    schema: Py<ArrowSchema>,
    /// All tags of the table, with the version that each tag names.
    #[pyo3(get)]
    tags: BTreeMap<String, u64>,
    /// The bytes, fragments and deleted rows of the data files; `None` from servers that do not tell it.
    #[pyo3(get)]
    size: Option<(u64, u64, u64)>,
}

impl TableInfo {
    /// Wraps the connection's answer.
    pub(crate) fn try_new(py: Python<'_>, info: stoker_session::TableInfo) -> PyResult<Self> {
        Ok(Self {
            name: info.name,
            version: info.version,
            num_rows: info.num_rows,
            schema: Py::new(py, ArrowSchema(info.schema))?,
            tags: info.tags,
            size: info.size.map(|size| (size.bytes, size.num_fragments, size.num_deleted_rows)),
        })
    }
}
