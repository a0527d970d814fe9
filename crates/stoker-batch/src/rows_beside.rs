//! Rows of windows, for a consumer that looks for substitutes itself.

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use stoker_types::IoTotals;

use crate::Held;

/// Rows of windows, in the order of the request.
#[derive(Debug)]
pub struct RowsBeside {
    /// The rows, with the columns of the query in order. The values of bad rows are undefined.
    pub data: RecordBatch,
    /// For each table of the stream, the address of each row, or `u64::MAX` if the table does not supply the row.
    pub row_addrs: Vec<Vec<u64>>,
    /// The indexes of the bad rows, with what is wrong with each of them, and where.
    pub bad: BTreeMap<usize, String>,
    /// The totals of the reads, where they are known.
    pub io: IoTotals,
    /// The memory that the rows hold in a budget.
    pub held: Option<Held>,
}
