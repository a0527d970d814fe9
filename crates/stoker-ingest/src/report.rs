//! The report of an ingest.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The report of an ingest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestReport {
    /// The version of the table that contains the rows.
    pub version: u64,
    /// The rows that this run wrote, or the runs that it continued.
    pub rows: u64,
    /// The bytes of the source files, skipped files included.
    pub bytes: u64,
    /// The number of source files, skipped files included.
    pub files: u64,
    /// The skipped files and parts of files, in the order of the sources.
    pub skipped: Vec<Skipped>,
    /// The number of files in the folders that were ignored because of their endings, by ending: `.txt`, or `without
    /// ending`; and the number of ignored lakes, under [`LAKES_LEFT_OUT`](crate::LAKES_LEFT_OUT).
    pub left_out: BTreeMap<String, u64>,
    /// The number of source files that were not written because the table already has them.
    pub known_files: u64,
    /// The number of units that an earlier run had finished.
    pub resumed_units: u64,
    /// Whether nothing was written because the table already has these files. `version` and `rows` are then those of
    /// earlier runs.
    pub already_ingested: bool,
}

impl IngestReport {
    /// Returns the number of files, parts of files and rows that were skipped.
    pub fn num_skipped(&self) -> u64 {
        self.skipped.iter().map(Skipped::count).sum()
    }
}

/// A source file, a part of one, or a row that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The path of the file. Bytes that are not UTF-8 become U+FFFD.
    pub path: String,
    /// The row of the file, from 0; `None` for a whole file, and for a part that the reason names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// The reason.
    pub reason: String,
    /// The number of further skipped rows of the file, which are not listed.
    #[serde(default)]
    pub num_more: u64,
}

impl Skipped {
    /// A file, or a part of one that the reason names.
    pub(crate) fn file(path: &Path, reason: impl Into<String>) -> Self {
        Self { path: path.display().to_string(), row: None, reason: reason.into(), num_more: 0 }
    }

    /// A row of a file.
    pub(crate) fn row(path: &Path, row: u64, reason: impl Into<String>) -> Self {
        Self { row: Some(row), ..Self::file(path, reason) }
    }

    /// Returns the number of files, parts or rows that this entry stands for.
    pub fn count(&self) -> u64 {
        self.num_more.saturating_add(1)
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        if let Some(row) = self.row {
            write!(f, " row {row}")?;
        }
        write!(f, ": {}", self.reason)?;
        match self.num_more {
            0 => Ok(()),
            num_more => write!(f, "; {num_more} further rows of this file were skipped"),
        }
    }
}
