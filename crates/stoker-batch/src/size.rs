//! Computes the sizes of rows in messages and in memory budgets.

use std::ops::Range;

use arrow_array::{Array, OffsetSizeTrait, RecordBatch};
use arrow_data::ArrayData;
use arrow_schema::DataType;

/// Returns the size of a record batch's rows in bytes.
pub fn record_batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| array_bytes(&column.to_data(), 0, column.len()) as u64).sum()
}

/// Returns the bytes that `rows` rows of an array take in a message, from row `start` on, without padding.
pub fn array_bytes(data: &ArrayData, start: usize, rows: usize) -> usize {
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
        DataType::Struct(_) => data.child_data().iter().map(|child| array_bytes(child, start, rows)).sum(),
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
    data.child_data().iter().map(|child| array_bytes(child, items.start, items.len())).sum()
}

/// Returns the size of views. A view takes 16 bytes, of which the first four are the length of its value. A value of up
/// to 12 bytes is inside the view; a longer one takes its own bytes more.
fn view_bytes(data: &ArrayData, at: usize, rows: usize) -> usize {
    let views = &data.buffers()[0].typed_data::<u128>()[at..at + rows];
    #[expect(clippy::cast_possible_truncation, reason = "the first four bytes are the lower bits")]
    let lengths = views.iter().map(|view| *view as u32);
    lengths.map(|length| 16 + if length > 12 { length as usize } else { 0 }).sum()
}
