//! How fast the rows of a column of compressed tensors are decoded.

use std::time::{Duration, Instant};

use arrow_array::{Array, ArrayRef};
use arrow_schema::Field;
use futures::TryStreamExt;
use stoker_columns::CompressedTensor;
use stoker_lake::{Result, ScanRequest, Table};

/// The bytes of the decoded rows that are measured, unless one row has more.
const SAMPLE_BYTES: usize = 4 << 20;

/// The most rows that are measured.
const SAMPLE_ROWS_MAX: usize = 1_024;

/// The time for which rows are decoded again and again.
const MEASURED: Duration = Duration::from_millis(20);

/// Returns how many bytes of tensors one thread of this process decodes in a second, measured on the first rows of a
/// column. `None` for a column of another kind, and for rows that cannot be read or decoded.
pub(crate) async fn decode_rate(table: &Table, field: &Field) -> Option<u64> {
    let tensor = CompressedTensor::try_of(field).ok()??;
    let rows = (SAMPLE_BYTES / tensor.row().num_bytes()).clamp(1, SAMPLE_ROWS_MAX);
    let frames = first_rows(table, field.name(), rows).await.ok()?;
    let num_rows: usize = frames.iter().map(|frames| frames.len()).sum();
    if num_rows == 0 {
        return None;
    }
    let bytes = (num_rows * tensor.row().num_bytes()) as f64;
    let (begun, mut num_passes) = (Instant::now(), 0.0);
    while num_passes == 0.0 || begun.elapsed() < MEASURED {
        for frames in &frames {
            tensor.decompress(frames).ok()?;
        }
        num_passes += 1.0;
    }
    let rate = num_passes * bytes / begun.elapsed().as_secs_f64().max(1e-9);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the conversion saturates")]
    let rate = rate as u64;
    Some(rate)
}

async fn first_rows(table: &Table, column: &str, rows: usize) -> Result<Vec<ArrayRef>> {
    let columns = vec![column.to_string()];
    let request = ScanRequest { columns, limit: Some(rows as u64), batch_size: rows, ..ScanRequest::default() };
    let batches = table.scan(&request).await?;
    let batches: Vec<_> = batches.try_collect().await.map_err(|source| stoker_lake::Error::DataCorrupt {
        attempted: format!("reading rows of column {column}"),
        reason: source.to_string(),
    })?;
    Ok(batches.iter().map(|batch| batch.column(0).clone()).collect())
}
