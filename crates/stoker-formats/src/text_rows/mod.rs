//! Rows of text files: the loop that JSON Lines and delimited text share.
//!
//! ```text
//! TextSource ──one row──► TextColumn ──paths──► MediaPaths: files that are found ──► sizes, so that batches are limited
//!                              └──── a batch ──► media is read ──► TableColumns::convert ──► RowBatch
//! ```

mod column;
mod finish;
mod media;

use std::sync::Arc;

pub(crate) use column::{TextColumn, TextType, TextValues};
pub(crate) use media::TextTable;

use self::finish::finish;
use crate::{BadRow, FolderFile, Result, RowBatch, RowReader};

/// The most bytes of a batch, whatever the caller asks for: offsets of text have 32 bits.
const BATCH_BYTES_MAX: usize = 1 << 30;

/// The most bad rows of a batch.
const BAD_ROWS_MAX: usize = 1 << 10;

/// The number of rows from which types are found, if the options do not tell.
pub(crate) const SAMPLED_ROWS_DEFAULT: usize = 10_000;

/// A line, or a record of several lines, up to which memory is taken for one row.
pub(crate) const ROW_TEXT_BYTES_MAX: usize = 64 << 20;

/// The most columns of a file, and fields in them.
pub(crate) const FIELDS_MAX: usize = 10_000;

/// What became of the next row of a text file.
pub(crate) enum TextRow {
    /// The row was added to the columns, and takes about this many bytes.
    Added(usize),
    /// The row cannot become a row of the table. It may have been added in part.
    Bad(String),
    /// The file has no further row.
    End,
}

/// A text file as rows.
pub(crate) trait TextSource: Send {
    /// The name of the file.
    fn name(&self) -> &str;

    /// The number of bytes of the file that were read.
    fn position(&self) -> u64;

    /// Adds the next row to the columns.
    ///
    /// # Errors
    /// Damage after which no further row can be read.
    fn next_row(&mut self, columns: &mut TextColumn) -> Result<TextRow>;
}

/// Reads the rows of a text file.
pub(crate) struct TextReader<S> {
    source: S,
    table: Arc<TextTable>,
    row: u64,
    /// The bytes of the file that batches have counted.
    counted: u64,
}

/// The rows of a batch that is being read.
struct PartialRows {
    columns: TextColumn,
    numbers: Vec<u64>,
    /// For each column of media, the file of each row.
    files: Vec<Vec<Option<FolderFile>>>,
    bad: Vec<BadRow>,
}

impl<S: TextSource> TextReader<S> {
    pub fn new(source: S, table: Arc<TextTable>) -> Self {
        Self { source, table, row: 0, counted: 0 }
    }

    /// Reads rows until they take `bytes_max` bytes.
    fn fill(&mut self, rows: &mut PartialRows, bytes_max: usize) -> Result<()> {
        let mut bytes = 0usize;
        while bytes < bytes_max && rows.bad.len() < BAD_ROWS_MAX {
            let before = rows.columns.len();
            let added = self.source.next_row(&mut rows.columns)?;
            let number = self.row;
            let outcome = match added {
                TextRow::End => break,
                TextRow::Bad(reason) => Err(reason),
                TextRow::Added(added) => {
                    let media = self.table.find_files(self.source.name(), &rows.columns, &mut rows.files);
                    media.map(|media| added.saturating_add(media))
                }
            };
            self.row = self.row.saturating_add(1);
            match outcome {
                Ok(added) => {
                    bytes = bytes.saturating_add(added);
                    rows.numbers.push(number);
                }
                Err(reason) => {
                    rows.columns.truncate(before);
                    rows.files.iter_mut().for_each(|files| files.truncate(before));
                    rows.bad.push(BadRow { row: number, reason });
                }
            }
        }
        Ok(())
    }
}

impl<S: TextSource> RowReader for TextReader<S> {
    /// A batch has no rows if all rows that were read are bad.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>> {
        let mut rows = PartialRows {
            columns: self.table.empty_columns(),
            numbers: Vec::new(),
            files: self.table.empty_files(),
            bad: Vec::new(),
        };
        self.fill(&mut rows, bytes_max.clamp(1, BATCH_BYTES_MAX))?;
        if rows.numbers.is_empty() && rows.bad.is_empty() {
            return Ok(None);
        }
        let media_bytes = rows.files.iter().flatten().flatten().map(|file| file.bytes);
        let media_bytes = media_bytes.fold(0u64, u64::saturating_add);
        let position = self.source.position();
        let text_bytes = position.saturating_sub(self.counted);
        self.counted = self.counted.max(position);
        let PartialRows { columns, numbers, files, mut bad } = rows;
        let arrays = finish(columns);
        let batch = self.table.with_media(arrays, &numbers, &files, &mut bad)?;
        let batch = self.table.convert(self.source.name(), batch, &mut bad)?;
        bad.sort_by_key(|row| row.row);
        Ok(Some(RowBatch { batch, bad, source_bytes: text_bytes.saturating_add(media_bytes) }))
    }
}
