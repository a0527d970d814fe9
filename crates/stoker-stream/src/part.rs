//! Some rows of a batch.

use arrow_array::RecordBatch;
use stoker_types::Cursor;

use crate::{Batch, Substitution};

/// Consecutive rows of a [`Batch`], in memory of their own. The parts of a batch come in order; a batch of no rows is one part.
#[derive(Clone, Debug)]
pub struct Part {
    /// The global batch, counted from the slice's origin.
    pub step: u64,
    /// Where a resume after the whole batch begins.
    pub cursor: Cursor,
    /// Rows of the whole batch.
    pub num_rows: usize,
    /// Rows of the whole batch that are not padding; padding comes last.
    pub num_valid: usize,
    /// Which row of the batch is the first of the part.
    pub first_row: usize,
    /// The rows of the part: the columns of the query, in order.
    pub data: RecordBatch,
    /// For each table of the stream, the address of each row of the part; `u64::MAX` where the table does not supply the row.
    pub row_addrs: Vec<Vec<u64>>,
    /// The rows of the part that stand for bad ones, ascending; they are numbered within the batch.
    pub substituted: Vec<Substitution>,
}

impl Part {
    /// Whether its batch ends with it.
    pub fn is_last(&self) -> bool {
        self.first_row + self.data.num_rows() == self.num_rows
    }

    /// The batch that has no other parts.
    pub(crate) fn into_batch(self) -> Batch {
        let Self { step, cursor, num_valid, data, row_addrs, substituted, .. } = self;
        Batch { step, cursor, data, num_valid, row_addrs, substituted }
    }
}
