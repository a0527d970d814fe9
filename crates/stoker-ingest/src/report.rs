//! What an ingest did.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an ingest did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestReport {
    /// The version of the table that holds the rows.
    pub version: u64,
    /// Rows written, by this run or by the runs that it continued.
    pub rows: u64,
    /// Bytes of the source files, skipped ones included.
    pub bytes: u64,
    /// Source files, skipped ones included.
    pub files: u64,
    /// What was left out, in the order of the sources.
    pub skipped: Vec<Skipped>,
    /// How many files of the folders were left out for their endings, by ending: `.txt`, or `without ending`.
    pub left_out: BTreeMap<String, u64>,
    /// Source files that were not written because the table has them.
    pub known_files: u64,
    /// Units that an earlier run had finished.
    pub resumed_units: u64,
    /// Whether nothing was done because this source is in the table already; the other numbers are those of that run.
    pub already_ingested: bool,
}

/// A source file, or a part of one, that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The file; in a name that is not UTF-8, what is not becomes U+FFFD.
    pub path: String,
    /// Why, and which part if not all of it.
    pub reason: String,
}
