//! Prints what an ingest would write.

use std::io::Write;

use anyhow::Result;
use arrow_cast::pretty::pretty_format_batches;
use indicatif::{HumanBytes, HumanCount};
use stoker_columns::kind_of;
use stoker_ingest::{Inspection, OnError, Skipped};
use stoker_types::TableName;

use super::report::left_out;
use crate::brief::brief;
use crate::print::print_cells;

/// The most files and rows that are listed because they do not fit.
const SKIPPED_SHOWN: usize = 20;

/// Prints the columns of the table, the first rows, what would be left out and why, and the bytes to write.
pub(super) fn print(out: &mut impl Write, table: &TableName, found: &Inspection, on_error: OnError) -> Result<()> {
    let (files, bytes) = (HumanCount(found.files), HumanBytes(found.bytes));
    writeln!(out, "table {table} would be written from {files} files of the kind {} ({bytes})\n", found.kind)?;
    let mut cells = vec![["column", "type", "nulls"].map(String::from)];
    for field in found.schema.fields() {
        let nulls = if field.is_nullable() { "allowed" } else { "none" };
        // The kind of a number says less than its type.
        let kind = match kind_of(field).name() {
            "scalar" => field.data_type().to_string().to_lowercase(),
            _ => kind_of(field).label(field),
        };
        cells.push([field.name().clone(), kind, nulls.into()]);
    }
    print_cells(out, &cells)?;
    writeln!(out, "\n{}", pretty_format_batches(&[brief(&found.rows)?])?)?;
    writeln!(out, "the first {} rows", found.rows.num_rows())?;
    for skipped in found.skipped.iter().take(SKIPPED_SHOWN) {
        let what = if on_error == OnError::Skip { "would be skipped" } else { "would end the ingest" };
        writeln!(out, "{what}: {skipped}")?;
    }
    let num_more: u64 = found.skipped.iter().skip(SKIPPED_SHOWN).map(Skipped::count).sum();
    if num_more > 0 {
        writeln!(out, "{num_more} more")?;
    }
    if !found.left_out.is_empty() {
        writeln!(out, "{}", left_out(&found.left_out))?;
    }
    Ok(writeln!(out, "about {} to write, before compression", HumanBytes(found.table_bytes))?)
}
