//! Chooses how many rows are decoded at a time.

use parquet::arrow::ProjectionMask;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use stoker_types::to_usize;

/// The target size of a record batch in bytes.
const BATCH_BYTES: u64 = 16 << 20;
/// The most rows per record batch.
const ROWS_MAX: u64 = 8192;
/// The most rows of the first record batch of a row group, whose rows were not measured yet.
const FIRST_ROWS_MAX: u64 = 32;
/// The first record batch is decoded again, in a larger one, if the larger one has at least this many times its rows.
const GROWTH_MIN: u64 = 4;

/// The number of rows per record batch of a row group.
///
/// Footers do not tell enough: for dictionary-encoded pages they have the sizes of the dictionary and of the indices,
/// and not the size of the values. So the first record batch is small, and the size of each one is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSize {
    rows: u64,
    /// The most rows: those that fit according to the footer, and at most those of the row group.
    rows_max: u64,
    /// Bytes of a row: in the last measurement, or according to the footer.
    row_bytes: u64,
    measured: bool,
}

/// The effect of a measurement on the following record batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Their number of rows stays.
    Kept,
    /// They get more rows. Only the first measurement has this effect.
    Grown,
    /// They get fewer rows.
    Shrunk,
}

impl BatchSize {
    /// Chooses the first size for a row group of `rows` rows, whose values take `plain_bytes` bytes according to the
    /// footer.
    pub fn new(rows: u64, plain_bytes: u64) -> Self {
        let row_bytes = (plain_bytes / rows.max(1)).max(1);
        let rows_max = fitting(row_bytes).min(rows.max(1));
        Self { rows: rows_max.min(FIRST_ROWS_MAX), rows_max, row_bytes, measured: false }
    }

    /// Returns the number of rows per record batch, at least one.
    pub fn rows(&self) -> usize {
        to_usize(self.rows)
    }

    /// Estimates the bytes of the next record batch when `rows_left` rows are left.
    pub fn bytes(&self, rows_left: u64) -> u64 {
        self.rows.min(rows_left).saturating_mul(self.row_bytes)
    }

    /// Updates the size after `rows` rows took `bytes` bytes.
    pub fn learn(&mut self, rows: usize, bytes: u64) -> Change {
        let is_first = !std::mem::replace(&mut self.measured, true);
        self.row_bytes = (bytes / (rows as u64).max(1)).max(1);
        let rows = fitting(self.row_bytes).min(self.rows_max);
        let change = if is_first && rows >= self.rows * GROWTH_MIN {
            Change::Grown
        } else if rows * 2 <= self.rows {
            Change::Shrunk
        } else {
            return Change::Kept;
        };
        self.rows = rows;
        change
    }
}

fn fitting(row_bytes: u64) -> u64 {
    (BATCH_BYTES / row_bytes).clamp(1, ROWS_MAX)
}

/// Returns the size in bytes of the decoded values of some columns of a row group, according to the footer.
pub(super) fn plain_bytes(group: &RowGroupMetaData, columns: &ProjectionMask) -> u64 {
    let included = group.columns().iter().enumerate().filter(|(leaf, _)| columns.leaf_included(*leaf));
    included.map(|(_, column)| column_bytes(column)).fold(0, u64::saturating_add)
}

/// Returns at least the size of the pages, and more if the footer has the length of the values behind a dictionary.
fn column_bytes(column: &ColumnChunkMetaData) -> u64 {
    let size = |size: i64| u64::try_from(size).unwrap_or(0);
    let width = match column.column_type() {
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE | Type::INT96 => 8,
        Type::FIXED_LEN_BYTE_ARRAY => size(i64::from(column.column_descr().type_length())),
        _ => 0,
    };
    let byte_arrays = column.unencoded_byte_array_data_bytes().map_or(0, size);
    let values = size(column.num_values()).saturating_mul(width).saturating_add(byte_arrays);
    values.max(size(column.uncompressed_size()))
}
