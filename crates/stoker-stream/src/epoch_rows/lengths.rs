//! The lengths of the rows of a query, read once.

use std::pin::pin;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_cast::cast;
use arrow_schema::DataType;
use futures::TryStreamExt;
use stoker_types::{Digest, DigestBuilder};

use super::column::{ColumnRows, EpochColumn};
use super::numbers::RowNumbers;
use crate::{Error, Result};

/// The number of rows whose lengths are read together from a column of numbers.
const LENGTHS_AT_ONCE: u64 = 1 << 16;

/// The number of rows, and about the bytes of tokens, that are read together to count them.
const TOKEN_ROWS_AT_ONCE: u64 = 1 << 12;
const TOKEN_BYTES_AT_ONCE: u64 = 16 << 20;

/// The length of each row of a query.
pub(super) struct RowLengths {
    pub lengths: RowNumbers,
    /// The digest of the lengths, in the order of the rows.
    pub digest: Digest,
}

impl RowLengths {
    /// Reads the lengths from a column of lists or of whole numbers. `each` gets the next rows and their lengths; `wanted`
    /// says what is needed in place of other columns.
    ///
    /// # Errors
    /// [`Error::EpochColumn`] for other columns, and for numbers that are no lengths; errors of `each` and of reading.
    pub async fn read(
        column: EpochColumn<'_>,
        wanted: &str,
        mut each: impl FnMut(&ColumnRows<'_>, &[u32]) -> Result<()>,
    ) -> Result<Self> {
        let rows_at_once = match column.data_type().is_integer() {
            true => LENGTHS_AT_ONCE,
            false => (TOKEN_BYTES_AT_ONCE / column.row_bytes()).clamp(1, TOKEN_ROWS_AT_ONCE),
        };
        let mut lengths = RowNumbers::for_rows(column.num_rows())?;
        let mut digest = DigestBuilder::new("stoker.lengths.v1");
        let mut reads = pin!(column.read(rows_at_once));
        while let Some(rows) = reads.try_next().await? {
            let read = lengths_of(column, &rows, wanted)?;
            each(&rows, &read)?;
            digest.update(&lengths.add(&read)?);
        }
        Ok(Self { lengths, digest: digest.finish() })
    }
}

/// Returns the lengths of rows. A NULL has none.
fn lengths_of(column: EpochColumn<'_>, rows: &ColumnRows<'_>, wanted: &str) -> Result<Vec<u32>> {
    let values = &rows.values;
    let length: Box<dyn Fn(usize) -> Option<i64> + '_> = match values.data_type() {
        DataType::List(_) => Box::new(|row| Some(i64::from(values.as_list::<i32>().value_length(row)))),
        DataType::LargeList(_) => Box::new(|row| Some(values.as_list::<i64>().value_length(row))),
        number if number.is_integer() => {
            let numbers = cast(values, &DataType::Int64).map_err(Error::arrow)?.as_primitive::<Int64Type>().clone();
            Box::new(move |row| numbers.is_valid(row).then(|| numbers.value(row)))
        }
        other => return Err(column.error(format!("it is {other}; {wanted}"))),
    };
    let of_row = |row: usize| {
        let length = if values.is_null(row) { Some(0) } else { length(row) };
        let shown = || length.map_or_else(|| "a number beyond 2^63".into(), |length| length.to_string());
        let fits = length.and_then(|length| u32::try_from(length).ok());
        fits.ok_or_else(|| rows.error(row, &shown(), "lengths are numbers from 0 to 2^32 - 1"))
    };
    (0..values.len()).map(of_row).collect()
}
