//! Collects the rows of one heavy column into pages.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, make_array};
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType};
use arrow_select::concat::concat;
use stoker_columns::fixed_row_bytes;

/// Collects the rows of one heavy column into pages of at most `page_bytes`; a wider row is a page of its own.
///
/// The buffer holds at most one page, as slices of the incoming arrays. A slice keeps its whole array in memory, so the
/// rest of an array of more than two pages is copied.
#[derive(Debug)]
pub struct PageBuffer {
    page_bytes: usize,
    pending: Vec<ArrayRef>,
    pending_bytes: usize,
}

impl PageBuffer {
    /// Makes a buffer for pages of at most `page_bytes`.
    pub fn new(page_bytes: usize) -> Self {
        Self { page_bytes, pending: Vec::new(), pending_bytes: 0 }
    }

    /// Adds rows and returns the pages that are full. Each page is a copy in memory of its own.
    ///
    /// # Errors
    /// Arrays of several types.
    pub fn push(&mut self, array: &ArrayRef) -> Result<Vec<ArrayRef>, ArrowError> {
        let mut pages = Vec::new();
        let mut start = 0;
        while start < array.len() {
            let (rows, bytes) = rows_that_fit(array, start, self.page_bytes - self.pending_bytes);
            if rows == 0 {
                pages.extend(self.flush()?);
                let (rows, _) = rows_that_fit(array, start, self.page_bytes);
                if rows == 0 {
                    pages.push(compact(&array.slice(start, 1)));
                    start += 1;
                }
                continue;
            }
            self.pending.push(array.slice(start, rows));
            self.pending_bytes += bytes;
            start += rows;
        }
        if array.get_buffer_memory_size() > 2 * self.page_bytes
            && let Some(rest) = self.pending.last_mut()
        {
            *rest = compact(rest);
        }
        Ok(pages)
    }

    /// Returns the remaining rows as one page.
    ///
    /// # Errors
    /// Arrays of several types.
    pub fn flush(&mut self) -> Result<Option<ArrayRef>, ArrowError> {
        let parts = std::mem::take(&mut self.pending);
        self.pending_bytes = 0;
        match parts.as_slice() {
            [] => Ok(None),
            [one] => Ok(Some(compact(one))),
            many => {
                let parts: Vec<&dyn Array> = many.iter().map(|part| part.as_ref()).collect();
                concat(&parts).map(Some)
            }
        }
    }
}

/// Copies an array into new memory that holds exactly its rows.
pub fn compact(array: &ArrayRef) -> ArrayRef {
    let data = array.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, array.len());
    copy.extend(0, 0, array.len());
    make_array(copy.freeze())
}

/// Returns how many rows from `start` on have at most `budget` bytes together, and the number of these bytes.
fn rows_that_fit(array: &ArrayRef, start: usize, budget: usize) -> (usize, usize) {
    let left = array.len() - start;
    if let Some(row_bytes) = fixed_row_bytes(array.data_type()) {
        let rows = budget.checked_div(row_bytes).unwrap_or(left).min(left);
        return (rows, rows * row_bytes);
    }
    match array.data_type() {
        DataType::Binary => by_offsets(array.as_binary::<i32>().value_offsets(), start, budget),
        DataType::LargeBinary => by_offsets(array.as_binary::<i64>().value_offsets(), start, budget),
        _ => {
            // Values of other variable types are assumed to have the average size.
            let bytes = array.to_data().get_slice_memory_size().unwrap_or(0);
            let average = bytes.div_ceil(array.len().max(1)).max(1);
            let rows = (budget / average).min(left);
            (rows, rows * average)
        }
    }
}

fn by_offsets<O: Copy + TryInto<usize>>(offsets: &[O], start: usize, budget: usize) -> (usize, usize) {
    let at = |index: usize| offsets[index].try_into().unwrap_or(usize::MAX);
    let first = at(start);
    let ends = &offsets[start + 1..];
    let rows = ends.partition_point(|end| (*end).try_into().unwrap_or(usize::MAX) - first <= budget);
    (rows, at(start + rows) - first)
}
