//! One rank's part of one global batch.

use arrow_array::RecordBatch;
use stoker_types::Cursor;

/// One rank's part of one global batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The global batch, counted from the slice's origin.
    pub step: u64,
    /// Where a resume after this batch begins.
    pub cursor: Cursor,
    /// The rows: the columns of the query, in order.
    pub data: RecordBatch,
    /// Rows that are not padding; padding comes last.
    pub num_valid: usize,
    /// For each source of the row set, the address of each row; `u64::MAX` where the source does not supply the row.
    pub row_addrs: Vec<Vec<u64>>,
}
