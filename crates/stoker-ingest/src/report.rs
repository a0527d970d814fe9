//! The report of an ingest.

use std::collections::BTreeMap;

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
    /// ending`.
    pub left_out: BTreeMap<String, u64>,
    /// The number of source files that were not written because the table already has them.
    pub known_files: u64,
    /// The number of units that an earlier run had finished.
    pub resumed_units: u64,
    /// Whether nothing was written because the table already has these files. `version` and `rows` are then those of
    /// earlier runs.
    pub already_ingested: bool,
}

/// A source file, or a part of one, that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The path of the file. Bytes that are not UTF-8 become U+FFFD.
    pub path: String,
    /// The reason, and which part if not the whole file was skipped.
    pub reason: String,
}
