//! Parts of a journal: values of the first rows of a fragment that is not finished, with the addresses of the rows.
//!
//! A part tells on what its values depend, and the last row before it. So a part that another process wrote at other borders
//! is noticed.

use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};

use super::journal::ColumnJournal;
use crate::{Error, Result};

/// The column with the row addresses.
const ADDRESS: &str = "__stoker_row_address";

/// The key of the schema metadata that tells the last row before the part.
const AFTER: &str = "stoker.after";

/// The key of the schema metadata that tells on what the values depend.
const SOURCE: &str = "stoker.source";

/// Values of the first rows of a fragment, in parts of a journal.
#[derive(Default)]
pub(super) struct KnownRows {
    /// The parts, in order.
    pub paths: Vec<String>,
    /// The address of the last row.
    pub last: Option<u64>,
    pub num_rows: u64,
}

impl ColumnJournal {
    /// Records values of rows of a fragment that is not finished, which come after a row.
    pub async fn put_part(
        &self,
        fragment: u32,
        number: usize,
        rows: &[RecordBatch],
        source: String,
        after: Option<u64>,
    ) -> Result<()> {
        let Some(first) = rows.first() else { return Ok(()) };
        let about = [(SOURCE, source), (AFTER, shown_address(after))].map(|(key, value)| (key.to_string(), value));
        let bytes = to_ipc(&first.schema().as_ref().clone().with_metadata(about.into()), rows)?;
        Ok(self.objects.put(&self.path(&format!("{fragment:010}/{number:06}.arrow")), bytes.into()).await?)
    }

    /// Returns the rows of a part; `None` for one that is gone or cannot be read, so that its rows are computed again.
    pub async fn part(&self, path: &str) -> Result<Option<Vec<RecordBatch>>> {
        let Some(bytes) = self.objects.get(path).await? else { return Ok(None) };
        let rows = StreamReader::try_new(bytes.as_ref(), None).and_then(Iterator::collect::<Result<_, ArrowError>>);
        Ok(rows.ok())
    }

    /// Returns the parts of a fragment that are of use: those before the first one that is gone, that another process
    /// replaced, or whose values depend on something that changed.
    pub async fn known_rows(&self, source: &str, paths: Vec<String>) -> Result<KnownRows> {
        let mut known = KnownRows::default();
        for path in paths {
            let Some(rows) = self.part(&path).await? else { break };
            let (mut last, mut num_rows) = (None, 0);
            for rows in &rows {
                let schema = rows.schema();
                let says = |key: &str, value: &str| schema.metadata().get(key).is_some_and(|found| found == value);
                if !says(SOURCE, source) || !says(AFTER, &shown_address(known.last)) {
                    return Ok(known);
                }
                let Ok((addrs, _)) = without_addresses(rows) else { return Ok(known) };
                last = addrs.values().last().copied().or(last);
                num_rows += rows.num_rows() as u64;
            }
            known.paths.push(path);
            known.last = last.or(known.last);
            known.num_rows += num_rows;
        }
        Ok(known)
    }
}

/// An Arrow stream of rows.
pub(super) fn to_ipc(schema: &Schema, rows: &[RecordBatch]) -> Result<Vec<u8>> {
    let write = || {
        let mut writer = StreamWriter::try_new(Vec::new(), schema)?;
        rows.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    };
    write().map_err(|source| Error::internal(format!("writing the journal of a column: {source}")))
}

/// Returns values with the addresses of their rows, for a journal.
pub(super) fn with_addresses(addrs: &[u64], values: &RecordBatch) -> Result<RecordBatch> {
    let mut fields = values.schema().fields().to_vec();
    fields.push(Field::new(ADDRESS, DataType::UInt64, false).into());
    let mut columns = values.columns().to_vec();
    columns.push(Arc::new(UInt64Array::from(addrs.to_vec())) as ArrayRef);
    RecordBatch::try_new(Schema::new(fields).into(), columns).map_err(|source| Error::internal(source.to_string()))
}

/// An address in the metadata of a part; empty for none.
fn shown_address(addr: Option<u64>) -> String {
    addr.map(|addr| addr.to_string()).unwrap_or_default()
}

/// Returns the addresses and the values in a part of a journal.
pub(super) fn without_addresses(rows: &RecordBatch) -> Result<(&UInt64Array, RecordBatch)> {
    let last = rows.num_columns().saturating_sub(1);
    let addrs = rows.columns().last().and_then(|column| column.as_primitive_opt::<UInt64Type>());
    let Some(addrs) = addrs else { return Err(Error::internal("a part of a journal has no addresses")) };
    let indices: Vec<usize> = (0..last).collect();
    let values = rows.project(&indices).map_err(|source| Error::internal(source.to_string()))?;
    Ok((addrs, values))
}
