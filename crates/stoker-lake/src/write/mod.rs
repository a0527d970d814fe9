//! Writes fragments: each heavy column in a data file of its own, in pages just under 8 MiB.

mod column_file;
mod draft;
mod table_writer;

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_schema::{Schema, SchemaRef};
use stoker_types::TableName;

use crate::{Error, Result};

pub(crate) use column_file::FragmentFiles;
pub use draft::{ColumnDraft, FragmentDraft};
pub(crate) use draft::{larger_losses, with_larger_losses};
pub use table_writer::{TableWriter, WriteOptions};

/// Returns rows with the columns, types and field metadata of a table, as [`stoker_pages::conform`].
pub(crate) fn conform(
    table: &TableName,
    schema: &SchemaRef,
    batch: &RecordBatch,
    first_row: u64,
) -> Result<RecordBatch> {
    stoker_pages::conform(schema, batch, first_row).map_err(|reason| invalid(table, reason))
}

/// Replaces the values of lossy columns, as [`stoker_pages::with_losses`].
fn with_losses(
    table: &TableName,
    schema: &SchemaRef,
    batch: &RecordBatch,
    first_row: u64,
    losses: &mut BTreeMap<String, f64>,
) -> Result<RecordBatch> {
    stoker_pages::with_losses(schema, batch, first_row, losses).map_err(|reason| invalid(table, reason))
}

/// Checks that a table can have columns with these names, as [`stoker_pages::check_names`].
pub(crate) fn check_names(table: &TableName, schema: &Schema) -> Result<()> {
    stoker_pages::check_names(schema).map_err(|reason| invalid(table, reason))
}

/// Checks that rows fit a table, as [`stoker_pages::check_schema`].
pub(crate) fn check_schema(table: &TableName, expected: &Schema, found: &Schema) -> Result<()> {
    stoker_pages::check_schema(expected, found).map_err(|reason| invalid(table, reason))
}

fn invalid(table: &TableName, reason: String) -> Error {
    Error::InvalidData { table: table.to_string(), reason }
}
