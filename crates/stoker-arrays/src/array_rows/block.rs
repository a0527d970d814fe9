//! The bytes of the rows of an array.

use std::io;
use std::sync::Arc;

use super::ArrayColumn;
use stoker_files::FileBytes;

/// Gives the bytes of rows, in their order.
pub(crate) trait RowBytes: Send {
    /// Fills `rows` with the next rows, whole ones. Returns the bytes of the file that were read.
    ///
    /// # Errors
    /// Errors of the system or the store; damage.
    fn fill(&mut self, rows: &mut [u8]) -> io::Result<u64>;
}

/// Rows of an array, with the columns that they have.
pub(crate) struct ArrayBlock {
    pub num_rows: u64,
    pub row_bytes: usize,
    pub columns: Vec<ArrayColumn>,
    pub source: Box<dyn RowBytes>,
}

/// Rows that lie one after the other in a file.
#[derive(Debug)]
pub(crate) struct FileRows {
    file: Arc<dyn FileBytes>,
    /// The offset in the file of the next row.
    next: u64,
}

impl FileRows {
    /// Begins at an offset in a file.
    pub fn new(file: Arc<dyn FileBytes>, offset: u64) -> Self {
        Self { file, next: offset }
    }
}

impl RowBytes for FileRows {
    fn fill(&mut self, rows: &mut [u8]) -> io::Result<u64> {
        self.file.read_at(self.next, rows)?;
        self.next = self.next.saturating_add(rows.len() as u64);
        Ok(rows.len() as u64)
    }
}
