//! Reads the samples of a shard as rows.

use std::sync::Arc;

use super::columns::MdsColumns;
use super::shard_reader::ShardReader;
use crate::values::BatchRows;
use crate::{Error, Result, RowBatch, RowReader};

/// The rows of a shard.
#[derive(Debug)]
pub(super) struct ShardRows {
    samples: ShardReader,
    columns: Arc<MdsColumns>,
    batch: BatchRows,
    next_row: u64,
    /// The damage after the rows of the last batch.
    damage: Option<Error>,
    is_ended: bool,
}

impl ShardRows {
    pub fn new(file: &str, samples: ShardReader, columns: Arc<MdsColumns>) -> Result<Self> {
        let batch = BatchRows::new(file, columns.schema(), None)?;
        Ok(Self { samples, columns, batch, next_row: 0, damage: None, is_ended: false })
    }

    /// Adds the next sample to the batch. Returns whether there was one.
    fn add(&mut self) -> Result<bool> {
        let values = match self.samples.next()? {
            None => return Ok(false),
            Some(Ok(sample)) => self.columns.values(sample),
            Some(Err(bytes)) => Err(format!("it has {bytes} bytes, more than a row may have")),
        };
        match values {
            Ok(values) => self.batch.push(self.next_row, &values),
            Err(reason) => self.batch.refuse(self.next_row, format!("sample {}: {reason}", self.next_row)),
        }
        self.next_row += 1;
        Ok(true)
    }
}

impl RowReader for ShardRows {
    /// Rows before damage are returned before its error. A batch has bad rows only if there are very many in succession,
    /// or no good rows after them.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        while !self.is_ended && !self.batch.is_full(bytes_max) {
            match self.add() {
                Ok(has_more) => self.is_ended = !has_more,
                Err(error) => {
                    self.is_ended = true;
                    if self.batch.is_empty() {
                        return Err(error);
                    }
                    self.damage = Some(error);
                }
            }
        }
        match self.batch.is_empty() {
            true => Ok(None),
            false => self.batch.take(self.samples.position()).map(Some),
        }
    }
}
