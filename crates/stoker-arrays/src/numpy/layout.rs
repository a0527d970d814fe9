//! How the rows of an array lie in its file.

use crate::array_rows::{ArrayColumn, ROW_BYTES_MAX};
use crate::npy_header::NpyHeader;
use crate::npy_type::{NpyField, NpyType};
use crate::{Error, Result};

/// How the rows of an array lie in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NpyLayout {
    pub num_rows: u64,
    pub row_bytes: usize,
    pub columns: Vec<ArrayColumn>,
    /// Whether the elements of a row lie apart from each other.
    pub is_fortran: bool,
}

impl NpyLayout {
    /// Returns the layout of an array that has `data_bytes` bytes behind its header.
    ///
    /// # Errors
    /// [`Error::Malformed`] for an array without dimensions, for records in several dimensions, and for another number of
    /// bytes; [`Error::Column`] for columns that tables cannot have.
    pub fn try_new(file: &str, column: &str, header: &NpyHeader, data_bytes: u64) -> Result<Self> {
        let Some((num_rows, shape)) = header.shape.split_first() else {
            let reason = "the array has no dimension, and so no rows; save x[None], whose first dimension is the rows";
            return Err(Error::Column { file: file.into(), column: column.into(), reason: reason.into() });
        };
        let num_bytes = header.shape.iter().try_fold(header.dtype.num_bytes() as u64, |a, b| a.checked_mul(*b));
        if num_bytes != Some(data_bytes) {
            let found = num_bytes.map_or("more than 2^64".to_string(), |bytes| bytes.to_string());
            let reason = format!(
                "the array of shape {:?} has {found} bytes, and {data_bytes} bytes follow the header: the file is cut off, or \
                 the header is wrong",
                header.shape
            );
            return Err(Error::malformed(file, reason));
        }
        let (columns, row_bytes) = match &header.dtype {
            NpyType::Single(layout) => {
                let column = ArrayColumn::try_new(file, column, layout.clone(), shape, 0)?;
                let row_bytes = column.num_bytes;
                (vec![column], row_bytes)
            }
            NpyType::Record { .. } if !shape.is_empty() => {
                let reason =
                    "records in several dimensions cannot be rows; save x.reshape(-1), or one array for each field";
                return Err(Error::Column { file: file.into(), column: column.into(), reason: reason.into() });
            }
            NpyType::Record { fields, num_bytes } => (record_columns(file, fields, *num_bytes)?, *num_bytes),
        };
        Ok(Self { num_rows: *num_rows, row_bytes, columns, is_fortran: header.is_fortran && !shape.is_empty() })
    }
}

fn record_columns(file: &str, fields: &[NpyField], num_bytes: usize) -> Result<Vec<ArrayColumn>> {
    if num_bytes > ROW_BYTES_MAX {
        return Err(Error::malformed(file, format!("a record has {num_bytes} bytes; the most are {ROW_BYTES_MAX}")));
    }
    let column =
        |field: &NpyField| ArrayColumn::try_new(file, &field.name, field.layout.clone(), &field.shape, field.offset);
    fields.iter().map(column).collect()
}
