//! Reads the samples of an archive as rows.

use std::sync::Arc;

use super::columns::TarColumns;
use super::tar_samples::TarSamples;
use crate::values::BatchRows;
use crate::{Error, Result, RowBatch, RowReader};

/// The rows of an archive.
#[derive(Debug)]
pub(super) struct TarRows {
    samples: TarSamples,
    columns: Arc<TarColumns>,
    batch: BatchRows,
    next_row: u64,
    /// The damage after the rows of the last batch.
    damage: Option<Error>,
    is_ended: bool,
}

impl TarRows {
    pub fn new(file: &str, samples: TarSamples, columns: Arc<TarColumns>) -> Result<Self> {
        let batch = BatchRows::new(file, columns.schema(), Some(0))?;
        Ok(Self { samples, columns, batch, next_row: 0, damage: None, is_ended: false })
    }
}

impl RowReader for TarRows {
    /// Rows before damage are returned before its error. A batch has bad rows only if there are very many in succession,
    /// or no good rows after them.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        if let Some(damage) = self.damage.take() {
            return Err(damage);
        }
        while !self.is_ended && !self.batch.is_full(bytes_max) {
            match self.samples.next() {
                Ok(Some(sample)) => {
                    self.columns.add(sample, self.next_row, &mut self.batch);
                    self.next_row += 1;
                }
                Ok(None) => self.is_ended = true,
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
