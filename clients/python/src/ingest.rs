//! Ingests of files, for Python.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use stoker_session::Connection;

use crate::arrow_export::ArrowArray;
use crate::engine::Engine;
use crate::exceptions::Raise;
use crate::runtime::wait_with;
use crate::values::to_python;

/// How far an ingest is. Numbers only grow, apart from those of an ingest that starts over.
#[derive(Debug, Default)]
pub struct IngestWatch {
    /// The files of the sources, and their bytes.
    pub files_total: AtomicU64,
    /// As [`IngestWatch::files_total`].
    pub bytes_total: AtomicU64,
    /// The files that are done.
    pub files: AtomicU64,
    /// The rows that are done.
    pub rows: AtomicU64,
    /// The bytes that are done.
    pub bytes: AtomicU64,
    /// The files, parts of files and rows that were skipped.
    pub skipped: AtomicU64,
}

/// What Python is told while an ingest runs: the keys of `IngestProgress`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Told {
    files_done: u64,
    files_total: u64,
    rows_done: u64,
    bytes_done: u64,
    bytes_total: u64,
    num_skipped: u64,
}

impl IngestWatch {
    fn told(&self) -> Told {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Told {
            files_done: read(&self.files),
            files_total: read(&self.files_total),
            rows_done: read(&self.rows),
            bytes_done: read(&self.bytes),
            bytes_total: read(&self.bytes_total),
            num_skipped: read(&self.skipped),
        }
    }
}

/// What an ingest did, or would do.
#[derive(Debug)]
pub enum IngestOutcome {
    /// The sources were written.
    Written(IngestSummary),
    /// Nothing was written.
    Preview(IngestPreview),
}

/// A file, a part of one, or a row that was left out, and why.
#[derive(Clone, Debug, Serialize)]
pub struct IngestSkipped {
    /// The file.
    pub path: String,
    /// The row of the file, from 0; `None` for files and parts of files.
    pub row: Option<u64>,
    /// The reason.
    pub reason: String,
    /// The number of further rows of the file that are not listed.
    pub num_more: u64,
}

/// The keys of the `IngestReport` mapping in `_native.pyi`.
#[derive(Clone, Debug, Serialize)]
pub struct IngestSummary {
    /// The kind of the sources.
    pub kind: String,
    /// The version of the table.
    pub version: u64,
    /// The rows that were written.
    pub num_rows: u64,
    /// The source files, and their bytes.
    pub num_files: u64,
    /// As [`IngestSummary::num_files`].
    pub bytes: u64,
    /// What was skipped.
    pub skipped: Vec<IngestSkipped>,
    /// The number of files that are no files of the kind, by ending.
    pub left_out: BTreeMap<String, u64>,
    /// The files that the table had already.
    pub num_known_files: u64,
    /// The units that an earlier run had finished.
    pub num_resumed_units: u64,
    /// Whether nothing was written, because the table has the files already.
    pub already_ingested: bool,
}

/// The keys of the `IngestPreview` mapping in `_native.pyi`.
#[derive(Clone, Debug, Serialize)]
pub struct IngestPreview {
    /// The kind of the sources.
    pub kind: String,
    /// The source files, and their bytes.
    pub num_files: u64,
    /// As [`IngestPreview::num_files`].
    pub bytes: u64,
    /// An estimate of the bytes to write, before compression.
    pub table_bytes: u64,
    /// What would be skipped, or end the ingest.
    pub skipped: Vec<IngestSkipped>,
    /// The number of files that are no files of the kind, by ending.
    pub left_out: BTreeMap<String, u64>,
    /// The first rows, with the columns of the table.
    #[serde(skip)]
    pub rows: Option<RecordBatch>,
}

/// Runs an ingest. Every 100 ms it tells `progress` what has changed; an exception of it, or of Ctrl-C, ends the ingest.
pub(crate) fn ingest<'py>(
    py: Python<'py>,
    engine: &dyn Engine,
    connection: Option<&Connection>,
    args: Vec<OsString>,
    progress: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let watch = IngestWatch::default();
    let mut last = Told::default();
    let mut tell = |py: Python<'_>| -> PyResult<()> {
        let told = watch.told();
        if let Some(progress) = progress
            && told != last
        {
            progress.call1((to_python(py, &told)?,))?;
            last = told;
        }
        Ok(())
    };
    let outcome = wait_with(py, engine.ingest(connection, args, &watch), &mut tell)?.raise(py)?;
    tell(py)?;
    match outcome {
        IngestOutcome::Written(summary) => to_python(py, &summary),
        IngestOutcome::Preview(preview) => {
            let told = to_python(py, &preview)?.cast_into::<PyDict>()?;
            let rows = preview.rows.unwrap_or_else(|| RecordBatch::new_empty(Arc::new(arrow_schema::Schema::empty())));
            told.set_item("rows", Py::new(py, ArrowArray::from_batch(rows))?)?;
            Ok(told.into_any())
        }
    }
}
