//! Joins the batches of several endpoints into one.

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};

use crate::{Batch, Error, Result, Substitution, interleave_column};

/// Joins the batches of E endpoints: row i of the result is row `i / E` of part `(first + i) mod E`. Copies all rows.
pub fn interleave_batches(mut parts: Vec<Batch>, first: usize) -> Result<Batch> {
    if parts.len() == 1 {
        return parts.pop().ok_or_else(|| Error::internal("no endpoints"));
    }
    let Some(head) = parts.first() else { return Err(Error::internal("no endpoints")) };
    let differs = |part: &Batch| {
        part.step != head.step || part.cursor != head.cursor || part.row_addrs.len() != head.row_addrs.len()
    };
    if parts.iter().any(differs) {
        return Err(Error::internal("the endpoints are at different steps"));
    }
    let rows: usize = parts.iter().map(|part| part.data.num_rows()).sum();
    let places: Vec<(usize, usize)> = (0..rows).map(|row| ((first + row) % parts.len(), row / parts.len())).collect();
    if places.iter().any(|(part, row)| *row >= parts[*part].data.num_rows()) {
        return Err(Error::internal("the endpoints sent other numbers of rows than requested"));
    }
    let column = |column: usize| {
        let arrays: Vec<&dyn Array> = parts.iter().map(|part| part.data.column(column).as_ref()).collect();
        interleave_column(&arrays, &places, None)
    };
    let columns: Result<Vec<ArrayRef>> = (0..head.data.num_columns()).map(column).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let data = RecordBatch::try_new_with_options(head.data.schema(), columns?, &options).map_err(Error::internal)?;
    let pick = |source: usize| places.iter().map(|(part, row)| parts[*part].row_addrs[source][*row]).collect();
    let row_addrs = (0..head.row_addrs.len()).map(pick).collect();
    let num_valid = parts.iter().map(|part| part.num_valid).sum();
    let num_parts = parts.len();
    let mut substituted = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        let offset = (index + num_parts - first % num_parts) % num_parts;
        let place = |found: &Substitution| Substitution { row: found.row * num_parts + offset, ..found.clone() };
        substituted.extend(part.substituted.iter().map(place));
    }
    substituted.sort_by_key(|found| found.row);
    let (step, cursor) = (head.step, head.cursor);
    Ok(Batch { step, cursor, data, num_valid, row_addrs, substituted, buckets: None })
}
