//! Versions and indexes of a table.

use serde::{Deserialize, Serialize};

/// A version of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionInfo {
    /// The version number.
    pub version: u64,
    /// When the version was committed, in milliseconds since 1970 UTC.
    pub timestamp_millis: i64,
    /// The tags that point to the version.
    pub tags: Vec<String>,
}

/// An index that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexInfo {
    /// The name of the index.
    pub name: String,
    /// The indexed columns.
    pub columns: Vec<String>,
    /// Lance's name for the kind of index: `IVF_PQ`, `BTree`, `Inverted`, ….
    #[serde(default)]
    pub kind: String,
}
