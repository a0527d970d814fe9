//! Writes the file of `stoker stream --log`: one line of JSON for each batch.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use arrow::row::{RowConverter, SortField};
use arrow_array::RecordBatch;
use stoker_batch::Batch;
use stoker_types::{Digest, DigestBuilder};

/// A file that records which rows each batch held.
pub struct BatchLog {
    path: PathBuf,
    out: BufWriter<File>,
}

impl BatchLog {
    /// Creates the file, or truncates an existing one.
    pub fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write the log {}", path.display()))?;
        Ok(Self { path: path.into(), out: BufWriter::new(file) })
    }

    /// Adds the line of a batch: its step, the position after it, its row addresses by table, and its digest.
    pub fn add(&mut self, batch: &Batch) -> anyhow::Result<()> {
        let addrs = |source: &Vec<u64>| -> Vec<Option<u64>> {
            source.iter().map(|addr| (*addr != u64::MAX).then_some(*addr)).collect()
        };
        let line = serde_json::json!({
            "epoch": batch.cursor.epoch,
            "step": batch.step,
            "position_after": batch.cursor.position,
            "num_valid": batch.num_valid,
            "row_addrs": batch.row_addrs.iter().map(addrs).collect::<Vec<_>>(),
            "substituted": batch.substituted.iter().map(|found| (found.row, &found.row_addrs)).collect::<Vec<_>>(),
            "sha256": values_digest(&batch.data)?,
        });
        writeln!(self.out, "{line}").with_context(|| format!("cannot write the log {}", self.path.display()))
    }

    /// Flushes the file.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.out.flush().with_context(|| format!("cannot write the log {}", self.path.display()))
    }
}

/// Returns a digest of the values of a batch, row by row, in Arrow's row format. It does not depend on the layout of
/// the Arrow buffers.
fn values_digest(batch: &RecordBatch) -> anyhow::Result<Digest> {
    let fields = batch.schema().fields().iter().map(|field| SortField::new(field.data_type().clone())).collect();
    let rows = RowConverter::new(fields)?.convert_columns(batch.columns())?;
    let mut digest = DigestBuilder::new("stoker.batch.v1");
    rows.iter().for_each(|row| digest.update(row.as_ref()));
    Ok(digest.finish())
}
