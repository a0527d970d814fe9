//! The parts in which a batch may be delivered.

use arrow_array::RecordBatch;
use stoker_types::Cursor;

use crate::{Batch, Substitution};

/// Consecutive rows of a [`Batch`], in memory of their own. The parts of a batch come in order. A batch without rows is
/// one part.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number of the global batch, counted from the slice's origin.
    pub step: u64,
    /// The cursor from which the stream resumes after the whole batch.
    pub cursor: Cursor,
    /// The number of rows of the whole batch.
    pub num_rows: usize,
    /// The number of rows of the whole batch that are not padding. Padding comes last.
    pub num_valid: usize,
    /// The index in the batch of the first row of the part.
    pub first_row: usize,
    /// The rows of the part, with the columns of the query in order.
    pub data: RecordBatch,
    /// For each table of the stream, the address of each row of the part, or `u64::MAX` if the table does not supply
    /// the row.
    pub row_addrs: Vec<Vec<u64>>,
    /// The rows of the part that replace bad rows, in ascending order. Their indexes are counted within the batch.
    pub substituted: Vec<Substitution>,
}

impl Part {
    /// Returns whether this is the last part of its batch.
    pub fn is_last(&self) -> bool {
        self.first_row + self.data.num_rows() == self.num_rows
    }

    /// Converts the only part of a batch to the batch.
    pub fn into_batch(self) -> Batch {
        let Self { step, cursor, num_valid, data, row_addrs, substituted, .. } = self;
        Batch { step, cursor, data, num_valid, row_addrs, substituted, buckets: None }
    }
}
