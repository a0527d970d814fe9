//! Joins the batches of several endpoints into one.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, RecordBatch, RecordBatchOptions, make_array};
use arrow_buffer::MutableBuffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use arrow_select::interleave::interleave;

use crate::{Batch, Error, Result, Substitution};

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
        let arrays: Vec<ArrayRef> = parts.iter().map(|part| part.data.column(column).clone()).collect();
        interleave_column(&arrays, &places)
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

/// Interleaves one column; `places` gives the array and the row there for each row of the result. Rows of tensors
/// without nulls are copied as bytes; other columns go through Arrow's kernel.
pub fn interleave_column(arrays: &[ArrayRef], places: &[(usize, usize)]) -> Result<ArrayRef> {
    let kernel = || {
        let arrays: Vec<&dyn Array> = arrays.iter().map(AsRef::as_ref).collect();
        interleave(&arrays, places).map_err(Error::internal)
    };
    let Some(DataType::FixedSizeList(item, length)) = arrays.first().map(|array| array.data_type().clone()) else {
        return kernel();
    };
    let items = usize::try_from(length).map_err(Error::internal)?;
    let lists: Vec<&FixedSizeListArray> = arrays.iter().map(|array| array.as_fixed_size_list()).collect();
    let has_nulls = |list: &&FixedSizeListArray| list.null_count() > 0 || list.values().null_count() > 0;
    let (Some(width), false) = (item.data_type().primitive_width(), lists.iter().any(has_nulls)) else {
        return kernel();
    };
    let row_bytes = width * items;
    let values: Vec<ArrayData> = lists.iter().map(|list| list.values().to_data()).collect();
    let bytes: Vec<&[u8]> = values.iter().map(|data| &data.buffers()[0].as_slice()[data.offset() * width..]).collect();
    let mut joined = MutableBuffer::with_capacity(places.len() * row_bytes);
    for (part, row) in places {
        joined.extend_from_slice(&bytes[*part][row * row_bytes..(row + 1) * row_bytes]);
    }
    let data = ArrayData::builder(item.data_type().clone()).len(places.len() * items).add_buffer(joined.into());
    let values = make_array(data.build().map_err(Error::internal)?);
    let list = FixedSizeListArray::try_new_with_length(item, length, values, None, places.len());
    Ok(Arc::new(list.map_err(Error::internal)?))
}
