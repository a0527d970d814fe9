//! Computes how many rows fit into a message.

use std::ops::Range;

use arrow_array::{Array, RecordBatch};
use arrow_data::ArrayData;
use stoker_batch::array_bytes;

/// Splits a record batch into ranges of rows of at most `message_bytes` each. Every range has at least one row, however
/// large it is; a record batch without rows gives one empty range.
pub fn split(batch: &RecordBatch, message_bytes: usize) -> Vec<Range<usize>> {
    let rows = batch.num_rows();
    if rows == 0 {
        return vec![Range { start: 0, end: 0 }];
    }
    let columns: Vec<ArrayData> = batch.columns().iter().map(|column| column.to_data()).collect();
    let fits = |start: usize, rows: usize| {
        columns.iter().map(|column| array_bytes(column, start, rows)).sum::<usize>() <= message_bytes
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
