//! What a format is.

use std::fmt;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::{Folder, Result};

/// What users say about the columns of files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// Columns that hold images: their bytes, or, in JSON Lines and CSV, paths of files in the folder.
    pub images: Vec<String>,
    /// Columns that hold videos, as `images`.
    pub videos: Vec<String>,
    /// Columns that hold sounds, as `images`.
    pub audio: Vec<String>,
    /// The number of rows from which the types of columns are found, where files do not say them.
    pub sampled_rows: usize,
}

/// A format of dataset files, such as WebDataset's.
pub trait FileFormat: fmt::Debug + Send + Sync {
    /// The name, as `stoker ingest --as` has it.
    fn name(&self) -> &'static str;

    /// Returns the names of the files that have rows, in their order, if the folder has some in this format. The
    /// contents of files may be looked at: a name can lie.
    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>>;

    /// Whether the format is used only if it is named, because it recognises what others do.
    fn is_named_only(&self) -> bool {
        false
    }

    /// Finds the columns of files that have rows.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for files that are not what the format says, and for options that do not fit.
    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>>;
}

/// Files with rows that have the same columns.
pub trait RowFiles: fmt::Debug + Send + Sync {
    /// The columns of all batches.
    fn schema(&self) -> SchemaRef;

    /// The names of the files, in the order of their rows.
    fn files(&self) -> &[String];

    /// The classes in the order of their labels, if the rows have columns `label` and `label_name` of the folders' names.
    fn classes(&self) -> Option<Vec<String>> {
        None
    }

    /// Begins to read a file, by its index.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for a file that cannot be opened or has other columns.
    fn read(&self, file: usize) -> Result<Box<dyn RowReader>>;
}

/// Reads the rows of a file, in order.
pub trait RowReader: Send {
    /// Returns the next rows, about `bytes_max` bytes of them and at least one, or `None` at the end of the file.
    ///
    /// # Errors
    /// [`Error`](crate::Error) for damage after which no further row can be read.
    fn next(&mut self, bytes_max: usize) -> Result<Option<RowBatch>>;
}

/// Rows of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct RowBatch {
    /// The rows.
    pub batch: RecordBatch,
    /// The rows between these and the batch before that cannot become rows of the table.
    pub bad: Vec<BadRow>,
    /// The bytes of the file that were read for the batch.
    pub source_bytes: u64,
}

/// A row of a file that cannot become a row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The row, counted from the start of the file.
    pub row: u64,
    /// The key, or the column, and what is wrong.
    pub reason: String,
}
