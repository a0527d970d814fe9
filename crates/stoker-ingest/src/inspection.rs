//! What an ingest would write.

use std::collections::BTreeMap;

use arrow_array::{Array, RecordBatch};
use arrow_schema::SchemaRef;

use crate::Skipped;

/// The most rows that are read.
pub(crate) const ROWS_MAX: usize = 10;

/// What an ingest would write, found from its first rows. Nothing is written.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// The name of the kind of source: `imagefolder`, `parquet` or that of a format.
    pub kind: String,
    /// The number of source files.
    pub files: u64,
    /// The bytes of the source files.
    pub bytes: u64,
    /// The columns of the table.
    pub schema: SchemaRef,
    /// The first rows, at most ten. Indexes of videos are missing.
    pub rows: RecordBatch,
    /// Files that cannot be read, and rows among the first ones that do not fit. The ingest skips them or fails.
    pub skipped: Vec<Skipped>,
    /// The number of files that would be left out because of their endings, by ending, and of lakes, as in
    /// [`IngestReport::left_out`](crate::IngestReport::left_out).
    pub left_out: BTreeMap<String, u64>,
    /// An estimate of the bytes that would be written, before compression: all rows are taken to be as large as the first
    /// ones.
    pub table_bytes: u64,
}

/// Returns the bytes of the values of rows, without memory that they share with other rows.
pub(crate) fn value_bytes(batch: &RecordBatch) -> u64 {
    let bytes = |array: &dyn Array| {
        let data = array.to_data();
        data.get_slice_memory_size().unwrap_or_else(|_| data.get_array_memory_size()) as u64
    };
    batch.columns().iter().map(|array| bytes(array)).sum()
}

/// Returns `part × whole ÷ of`; `whole` if `of` is 0.
pub(crate) fn scaled(part: u64, whole: u64, of: u64) -> u64 {
    if of == 0 {
        return whole;
    }
    let scaled = u128::from(part) * u128::from(whole) / u128::from(of);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
