//! Finds the offsets of rows in their files.

use stoker_lake::DenseColumn;

use crate::{Error, Result};

/// Finds rows of a column. It searches the page table only for rows outside the contiguous run that contains the last
/// row.
#[derive(Debug)]
pub(crate) struct Locator<'a> {
    name: &'a str,
    column: &'a DenseColumn,
    /// The run that was found last: the address of a row in it, the offset of that row, and the number of rows from it
    /// on.
    first: u64,
    begin: u64,
    num_rows: u64,
}

impl<'a> Locator<'a> {
    /// Makes a locator that has found no run yet.
    pub fn new(name: &'a str, column: &'a DenseColumn) -> Self {
        Self { name, column, first: 0, begin: 0, num_rows: 0 }
    }

    /// Returns the offset in its file at which the row at an address begins, and the number of rows from this one on
    /// that are contiguous in the file.
    ///
    /// # Errors
    /// [`Error::UnknownRow`].
    pub fn locate(&mut self, address: u64) -> Result<(u64, u64)> {
        if address.checked_sub(self.first).is_none_or(|row| row >= self.num_rows) {
            let file = self.column.file((address >> 32) as u32);
            let located = file.and_then(|file| file.locate(address & 0xFFFF_FFFF));
            let unknown = || Error::UnknownRow { address, column: self.name.to_string() };
            (self.begin, self.num_rows) = located.ok_or_else(unknown)?;
            self.first = address;
        }
        let row = address - self.first;
        let offset = self.begin.saturating_add(row.saturating_mul(self.column.row_bytes as u64));
        Ok((offset, self.num_rows - row))
    }
}
