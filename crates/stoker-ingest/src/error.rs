//! Errors of ingests.

use std::path::{Path, PathBuf};

use stoker_types::ErrorKind;

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an ingest failed. No table has changed, except when storage failed after the commit: the same call then finds
/// the commit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A source does not exist or cannot be listed.
    #[error("cannot list {}: {source}", path.display())]
    List {
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A source contains nothing to ingest.
    #[error("nothing to ingest in {}: {reason}", path.display())]
    Empty {
        /// The file or folder.
        path: PathBuf,
        /// What was looked for.
        reason: String,
    },
    /// A folder does not have the expected layout.
    #[error("{} does not fit the layout: {reason}", path.display())]
    Layout {
        /// The file or folder.
        path: PathBuf,
        /// The expected layout.
        reason: String,
    },
    /// A source file cannot be read or decoded.
    #[error("cannot read {}: {reason}; repair or remove the file, or leave such files out with --on-error skip", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong with the file.
        reason: String,
    },
    /// The store of a source file did not answer, after all retries. The file is never skipped, because it may be intact.
    #[error("cannot read {}: {reason}; run the same command again to go on", path.display())]
    Unreachable {
        /// The file.
        path: PathBuf,
        /// What the store says.
        reason: String,
    },
    /// A row of a source file cannot become a row of the table.
    #[error(
        "{} row {row}: {reason}; repair or remove the row, or leave such rows out with --on-error skip",
        path.display()
    )]
    Row {
        /// The file.
        path: PathBuf,
        /// The row in the file, from 0.
        row: u64,
        /// What is wrong with the row.
        reason: String,
    },
    /// A column that tables cannot have, or that differs from one file to the next.
    #[error("{}, column {column}: {reason}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What is wrong with the column.
        reason: String,
    },
    /// A source file changed after it was listed. It is never skipped, because the digest that identifies the ingest no
    /// longer fits its sources.
    #[error(
        "{} changed while it was ingested: {change}; run the same command again when no process writes to it",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What differs.
        change: String,
    },
    /// A readable value does not fit its column.
    #[error("{}{}column {column}: expected {expected}, found {found}", path.display(), row.map_or(": ".into(), |row| format!(" row {row} ")))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// The row in the file, from 0; `None` if the error concerns all rows.
        row: Option<u64>,
        /// The column.
        column: String,
        /// What the column needs.
        expected: String,
        /// What the file contains, and what the user can do about it.
        found: String,
    },
    /// An option that is not valid.
    #[error("{option} is not valid: {reason}")]
    InvalidOption {
        /// The option, as on the command line.
        option: String,
        /// What is wrong, and what would be valid.
        reason: String,
    },
    /// The table to create already exists.
    #[error(
        "table {table} already exists in {lake}; add the rows with --mode append or replace it with --mode overwrite"
    )]
    AlreadyExists {
        /// The table.
        table: String,
        /// The lake.
        lake: String,
    },
    /// The table to append to does not exist.
    #[error("{source}; create it with --mode create")]
    NoTable {
        /// The error of the lake.
        source: stoker_lake::Error,
    },
    /// A file that the table has changed since its ingest. Appending adds files and never replaces rows.
    #[error(
        "the content of {} differs from that of the file that was ingested from this path in version {version} of \
         table {table}{}; give changed files another name, or write the table again with --mode overwrite",
        path.display(),
        and_more(*num_more)
    )]
    OtherContent {
        /// The first such file.
        path: PathBuf,
        /// The table.
        table: String,
        /// The version that contains the file's earlier content.
        version: u64,
        /// The number of further such files.
        num_more: usize,
    },
    /// An earlier ingest of the table kept no list of its files.
    #[error(
        "cannot tell which of these files are in table {table} already: {version} was written by an ingest that stored \
         no list of its files; write the table again with --mode overwrite, or give --again to add the rows of all \
         these files, even if the table has them already"
    )]
    NoFileList {
        /// The table.
        table: String,
        /// The version of that ingest, as a phrase.
        version: String,
    },
    /// The lake's record of finished ingests is damaged.
    #[error(
        "cannot tell whether these sources were ingested before: {path} in the lake is damaged ({reason}); check \
         whether the rows are in the table, then delete that file"
    )]
    Journal {
        /// The path of the record, relative to the lake.
        path: String,
        /// What is wrong with the record.
        reason: String,
    },
    /// [`crate::Progress::should_stop`] returned true.
    #[error("stopped after {units_done} of {units} units; run the same command again to resume")]
    Stopped {
        /// The number of finished units, which need not be repeated.
        units_done: usize,
        /// The number of all units.
        units: usize,
    },
    /// Nulls in a column of fixed-size lists, which are to be written to a Parquet file.
    #[error(
        "column {column} has nulls, and many readers of Parquet cannot read lists of a fixed size that are null: leave \
         these rows out with WHERE {column} IS NOT NULL, or cast the column to lists of any size, as {column}::FLOAT[] does"
    )]
    NullLists {
        /// The column.
        column: String,
    },
    /// Rows that cannot be written as Parquet.
    #[error("cannot write the rows as Parquet: {reason}")]
    NotParquet {
        /// What Parquet has not.
        reason: String,
    },
    /// A Parquet file could not be written.
    #[error("cannot write the Parquet file: {source}")]
    NotWritten {
        /// The cause.
        source: std::io::Error,
    },
    /// An error of the lake.
    #[error(transparent)]
    Lake(#[from] stoker_lake::Error),
    /// A defect of this crate.
    #[error("{attempted}: {source}")]
    Internal {
        /// What was attempted.
        attempted: String,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn and_more(num_more: usize) -> String {
    if num_more == 0 { String::new() } else { format!(", and {num_more} more files differ") }
}

impl Error {
    /// Returns the kind, which says what a caller should do about the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::List { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => ErrorKind::NotFound,
                std::io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
                _ => ErrorKind::Unavailable,
            },
            Error::Empty { .. }
            | Error::Layout { .. }
            | Error::Mismatch { .. }
            | Error::Column { .. }
            | Error::InvalidOption { .. }
            | Error::OtherContent { .. }
            | Error::NoFileList { .. }
            | Error::NullLists { .. }
            | Error::NotParquet { .. } => ErrorKind::InvalidRequest,
            Error::Unreadable { .. } | Error::Row { .. } | Error::Journal { .. } => ErrorKind::DataCorrupt,
            Error::Changed { .. } | Error::Unreachable { .. } | Error::NotWritten { .. } => ErrorKind::Unavailable,
            Error::AlreadyExists { .. } => ErrorKind::AlreadyExists,
            Error::Stopped { .. } => ErrorKind::Cancelled,
            Error::Lake(source) | Error::NoTable { source } => source.kind(),
            Error::Internal { .. } => ErrorKind::Internal,
        }
    }

    pub(crate) fn list(path: &Path, source: std::io::Error) -> Self {
        Self::List { path: path.to_path_buf(), source }
    }

    pub(crate) fn option(option: &str, reason: impl Into<String>) -> Self {
        Self::InvalidOption { option: option.into(), reason: reason.into() }
    }

    pub(crate) fn internal(
        attempted: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Internal { attempted: attempted.into(), source: source.into() }
    }
}
