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
    /// For each table of the stream, the address of each row; `u64::MAX` where the table does not supply the row.
    pub row_addrs: Vec<Vec<u64>>,
    /// The rows that stand for bad ones, ascending.
    pub substituted: Vec<Substitution>,
}

/// A row that stands for a bad one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// Which row of the batch, also where it comes with a [`Part`](crate::Part).
    pub row: usize,
    /// For each table of the stream, the address of the bad row, as in [`Batch::row_addrs`].
    pub row_addrs: Vec<u64>,
    /// What is wrong with the bad row, and where.
    pub reason: String,
}
