//! Chooses how many rows are decoded at a time.

use parquet::arrow::ProjectionMask;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

/// Bytes that a record batch should take.
const BATCH_BYTES: u64 = 16 << 20;
/// Rows per record batch at most.
const ROWS_MAX: u64 = 8192;
/// Rows of the first record batch of a row group at most: before it is measured, nothing is known for sure.
const FIRST_ROWS_MAX: u64 = 32;
/// Larger record batches are worth decoding the first one twice when they hold so many times its rows.
const GROWTH_MIN: u64 = 4;

/// The rows per record batch of a row group.
///
/// Footers tell too little: of dictionary-encoded pages the size of the dictionary and of the indices, not that of the values
/// that these stand for. So the first record batch is small, and each is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct BatchSize {
    rows: u64,
    /// What fits as far as the footer tells, and not more than there are.
    rows_max: u64,
    /// Bytes of a row: of those measured last, or as far as the footer tells.
    row_bytes: u64,
    measured: bool,
}

/// What a measurement does to the record batches that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// They stay as they are.
    Kept,
    /// They get more rows; only after the first.
    Grown,
    /// They get fewer rows.
    Shrunk,
}

impl BatchSize {
    /// The size for a row group of so many rows, whose values take so many bytes as far as the footer tells.
    pub fn new(rows: u64, plain_bytes: u64) -> Self {
        let row_bytes = (plain_bytes / rows.max(1)).max(1);
        let rows_max = fitting(row_bytes).min(rows.max(1));
        Self { rows: rows_max.min(FIRST_ROWS_MAX), rows_max, row_bytes, measured: false }
    }

    /// Rows per record batch, at least one.
    pub fn rows(&self) -> usize {
        self.rows as usize
    }

    /// Bytes that the next record batch will take when so many rows are left.
    pub fn bytes(&self, rows_left: u64) -> u64 {
        self.rows.min(rows_left).saturating_mul(self.row_bytes)
    }

    /// Learns how many bytes so many rows took.
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

/// Bytes of the decoded values of some columns of a row group, as far as the footer tells.
pub(super) fn plain_bytes(group: &RowGroupMetaData, columns: &ProjectionMask) -> u64 {
    let included = group.columns().iter().enumerate().filter(|(leaf, _)| columns.leaf_included(*leaf));
    included.map(|(_, column)| column_bytes(column)).fold(0, u64::saturating_add)
}

/// At least what the pages take; more where the footer knows how long the values behind a dictionary are.
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
