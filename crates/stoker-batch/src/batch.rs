//! The batches that a rank gets.

use std::sync::Arc;

use arrow_array::RecordBatch;
use stoker_types::Cursor;

use crate::BatchBuckets;

/// One rank's share of one global batch.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The number of the global batch, counted from the slice's origin.
    pub step: u64,
    /// The cursor from which the stream resumes after this batch.
    pub cursor: Cursor,
    /// The rows, with the columns of the query in order.
    pub data: RecordBatch,
    /// The number of rows that are not padding. Padding comes last.
    pub num_valid: usize,
    /// For each table of the stream, the address of each row, or `u64::MAX` if the table does not supply the row.
    pub row_addrs: Vec<Vec<u64>>,
    /// The rows that replace bad rows, in ascending order.
    pub substituted: Vec<Substitution>,
    /// The buckets that the rows belong to, or `None` for rows that are not those of buckets.
    pub buckets: Option<Arc<BatchBuckets>>,
}

/// A row that replaces a bad row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Substitution {
    /// The index of the row in the batch, also if the row is delivered with a [`Part`](crate::Part).
    pub row: usize,
    /// For each table of the stream, the address of the bad row, as in [`Batch::row_addrs`].
    pub row_addrs: Vec<u64>,
    /// What is wrong with the bad row, and where.
    pub reason: String,
}
