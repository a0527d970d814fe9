//! Writes Arrow data from Python as one new table version.

use arrow_array::RecordBatchReader;
use arrow_schema::{Schema, SchemaRef};
use pyo3::prelude::*;
use stoker_lake::{CommitMode, LakeStore, TableWriter, WriteOptions};
use stoker_types::{ErrorKind, SnapshotRef, TableName};

use crate::arrow_import::reader;
use crate::exceptions::{Raise, error};
use crate::exit::detached;
use crate::fit::{fit, target_schema};
use crate::images::wrong_image;
use crate::runtime::wait;

/// The keys of the `WriteRequest` mapping in `_native.pyi`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct WriteRequest {
    table: String,
    mode: String,
    rows_per_fragment_max: Option<u64>,
}

/// Writes all batches and commits them. Nothing is visible before the commit; an error leaves the table as it was.
pub(crate) fn write(lake: &LakeStore, data: &Bound<'_, PyAny>, request: &WriteRequest) -> PyResult<u64> {
    let py = data.py();
    let name = TableName::try_new(request.table.as_str()).raise(py)?;
    let mode = match request.mode.as_str() {
        "create" => CommitMode::Create,
        "append" => CommitMode::Append,
        "create_or_append" => CommitMode::CreateOrAppend,
        "overwrite" => CommitMode::Overwrite,
        other => {
            let message = format!("mode {other:?} is unknown; modes: create, append, create_or_append, overwrite");
            return Err(error(py, ErrorKind::InvalidRequest, &message));
        }
    };
    let existing = existing(py, lake, &name)?;
    if mode == CommitMode::Create && existing.is_some() {
        let (table, lake) = (name.to_string(), lake.uri().to_string());
        return Err(stoker_lake::Error::TableExists { table, lake }).raise(py);
    }
    let mut options = WriteOptions::default();
    if let Some(rows) = request.rows_per_fragment_max {
        options.rows_per_fragment_max = rows.max(1);
    }
    let mut batches = reader(data)?;
    let for_append = matches!(mode, CommitMode::Append | CommitMode::CreateOrAppend);
    let target = target_schema(&batches.schema(), existing.as_deref().filter(|_| for_append));
    let mut writer = wait(py, lake.writer(&name, &target, for_append, options))?.raise(py)?;
    let schema = writer.schema();
    if let Err(failed) = write_all(py, &name, &mut writer, &mut batches, &target) {
        wait(py, writer.abort())?;
        return Err(failed);
    }
    let fragments = wait(py, writer.finish())?.raise(py)?;
    wait(py, lake.commit(&name, &schema, mode, fragments, None))?.raise(py)
}

/// Returns the schema of the newest version, or `None` if there is no such table.
fn existing(py: Python<'_>, lake: &LakeStore, name: &TableName) -> PyResult<Option<SchemaRef>> {
    match wait(py, lake.table(name, &SnapshotRef::Latest))? {
        Ok(table) => Ok(Some(table.schema())),
        Err(absent) if absent.kind() == ErrorKind::NotFound => Ok(None),
        Err(failed) => Err(failed).raise(py),
    }
}

fn write_all(
    py: Python<'_>,
    table: &TableName,
    writer: &mut TableWriter,
    batches: &mut (impl RecordBatchReader + Send),
    target: &Schema,
) -> PyResult<()> {
    let mut num_rows = 0;
    // The reader may call back into Python, for which it takes the interpreter lock itself.
    while let Some(batch) = detached(py, || batches.next()) {
        let batch = fit(&batch.raise(py)?, target).raise(py)?;
        if let Some(reason) = wrong_image(&batch, target, num_rows) {
            return Err(stoker_lake::Error::InvalidData { table: table.to_string(), reason }).raise(py);
        }
        num_rows += batch.num_rows() as u64;
        wait(py, writer.write(&batch))?.raise(py)?;
    }
    Ok(())
}
