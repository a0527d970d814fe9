//! Serializes, reads and digests a page of ranked rows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use bytes::Bytes;
use datafusion::arrow::ipc::reader::StreamReader;
use datafusion::arrow::ipc::writer::StreamWriter;
use datafusion::arrow::row::{RowConverter, SortField};
use stoker_types::{Digest, DigestBuilder};

use super::store::unframe;
use crate::Result;

/// The rows of every page but the last.
pub(super) const PAGE_ROWS: usize = 65_536;

/// Returns the digest of a page's values in Arrow's row format, in which equal values have equal bytes.
///
/// The IPC bytes cannot be digested instead, because the bytes below NULLs and in padding are arbitrary.
pub(super) fn digest(batch: &RecordBatch) -> Result<Digest> {
    let fields: Vec<SortField> =
        batch.columns().iter().map(|column| SortField::new(column.data_type().clone())).collect();
    let converter = RowConverter::new(fields)?;
    let rows = converter.convert_columns(batch.columns())?;
    let mut digest = DigestBuilder::new("stoker.row_set.page");
    for row in &rows {
        digest.update(row.as_ref());
    }
    Ok(digest.finish())
}

/// Returns a page as an Arrow IPC stream.
pub(super) fn to_ipc(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut writer = StreamWriter::try_new(Vec::new(), batch.schema_ref())?;
    writer.write(batch)?;
    Ok(writer.into_inner()?)
}

/// Reads a stored page, or returns why it is damaged.
pub(super) fn read(framed: &Bytes, expected: Digest) -> Result<RecordBatch, String> {
    let content = unframe(framed)?;
    let text = |source: &dyn std::fmt::Display| source.to_string();
    let mut reader = StreamReader::try_new(content.as_ref(), None).map_err(|source| text(&source))?;
    let batch = reader.next().ok_or("it has no rows")?.map_err(|source| text(&source))?;
    match digest(&batch) {
        Ok(actual) if actual == expected => Ok(batch),
        Ok(actual) => Err(format!("it is page {actual}")),
        Err(source) => Err(source.to_string()),
    }
}

/// Returns the bytes of the buffers of a page.
pub(super) fn bytes_in_memory(batch: &RecordBatch) -> usize {
    batch.columns().iter().map(|column: &Arc<dyn Array>| ArrayRef::get_array_memory_size(column)).sum()
}
