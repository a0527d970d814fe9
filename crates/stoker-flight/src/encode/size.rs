//! Computes the sizes of rows in messages, and how many rows fit into a message.

use std::ops::Range;

use arrow_array::{Array, OffsetSizeTrait, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// Splits a record batch into ranges of rows of at most `message_bytes` each. Every range has at least one row, however
/// large it is; a record batch without rows gives one empty range.
pub(crate) fn split(batch: &RecordBatch, message_bytes: usize) -> Vec<Range<usize>> {
    let rows = batch.num_rows();
    if rows == 0 {
        return vec![Range { start: 0, end: 0 }];
    }
    let columns: Vec<ArrayData> = batch.columns().iter().map(|column| column.to_data()).collect();
    let fits = |start: usize, rows: usize| {
        columns.iter().map(|column| bytes(column, start, rows)).sum::<usize>() <= message_bytes
    };
    let mut parts = Vec::new();
    let mut start = 0;
    while start < rows {
        // Finds the largest number of rows that fits, by bisection: sizes grow with the number of rows.
        let (mut taken, mut too_many) = (1, rows - start + 1);
        if fits(start, rows - start) {
            taken = rows - start;
        }
        while taken + 1 < too_many {
            let middle = taken + (too_many - taken) / 2;
            match fits(start, middle) {
                true => taken = middle,
                false => too_many = middle,
            }
        }
        parts.push(start..start + taken);
        start += taken;
    }
    parts
}

/// Returns the bytes that `rows` rows of an array take in a message, from row `start` on, without padding.
pub(crate) fn bytes(data: &ArrayData, start: usize, rows: usize) -> usize {
    let at = data.offset() + start;
    let validity = if data.nulls().is_some() { rows.div_ceil(8) } else { 0 };
    let values = match data.data_type() {
        DataType::Null => 0,
        DataType::Boolean => rows.div_ceil(8),
        DataType::Binary | DataType::Utf8 => offset_bytes::<i32>(rows) + span::<i32>(data, at, rows).len(),
        DataType::LargeBinary | DataType::LargeUtf8 => offset_bytes::<i64>(rows) + span::<i64>(data, at, rows).len(),
        DataType::List(_) | DataType::Map(_, _) => offset_bytes::<i32>(rows) + child(data, span::<i32>(data, at, rows)),
        DataType::LargeList(_) => offset_bytes::<i64>(rows) + child(data, span::<i64>(data, at, rows)),
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).unwrap_or(0);
            child(data, at * size..(at + rows) * size)
        }
        // The rows of a struct are the same rows of its children.
        DataType::Struct(_) => data.child_data().iter().map(|child| bytes(child, start, rows)).sum(),
        DataType::Utf8View | DataType::BinaryView => view_bytes(data, at, rows),
        DataType::FixedSizeBinary(width) => rows * usize::try_from(*width).unwrap_or(0),
        other => match other.primitive_width() {
            Some(width) => rows * width,
            // Types that Stoker rarely sends: this is Arrow's estimate.
            None => data.slice(start, rows).get_slice_memory_size().unwrap_or(0),
        },
    };
    validity + values
}

fn offset_bytes<O>(rows: usize) -> usize {
    (rows + 1) * size_of::<O>()
}

/// Returns the range of the rows' values in the array's value buffer or child.
fn span<O: OffsetSizeTrait>(data: &ArrayData, at: usize, rows: usize) -> Range<usize> {
    if rows == 0 {
        return Range { start: 0, end: 0 };
    }
    let offsets = data.buffers()[0].typed_data::<O>();
    offsets[at].as_usize()..offsets[at + rows].as_usize()
}

fn child(data: &ArrayData, items: Range<usize>) -> usize {
    data.child_data().iter().map(|child| bytes(child, items.start, items.len())).sum()
}

/// Returns the size of views. A view takes 16 bytes, of which the first four are the length of its value. A value of up
/// to 12 bytes is inside the view; a longer one takes its own bytes more.
fn view_bytes(data: &ArrayData, at: usize, rows: usize) -> usize {
    let views = &data.buffers()[0].typed_data::<u128>()[at..at + rows];
    views.iter().map(|view| 16 + if *view as u32 > 12 { *view as u32 as usize } else { 0 }).sum()
}
