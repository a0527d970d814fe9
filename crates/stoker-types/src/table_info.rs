//! Versions, branches and indexes of a table.

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IndexInfo {
    /// The name of the index.
    pub name: String,
    /// The indexed columns.
    pub columns: Vec<String>,
    /// Lance's name for the kind of index: `IVF_PQ`, `BTree`, `Inverted`, ….
    #[serde(default)]
    pub kind: String,
    /// The number of rows that the index covers.
    #[serde(default)]
    pub num_rows_covered: u64,
    /// The number of rows that were added after the index was built; searches read them beside the index.
    #[serde(default)]
    pub num_rows_not_covered: u64,
    /// The size of the index in bytes; `None` if it was built by a version of Lance that does not record it.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The parameters of the index as a JSON object, as Lance describes them.
    #[serde(default)]
    pub parameters: String,
    /// The share of the nearest 10 rows that searches by this index find, from 0 to 1, as it was estimated when the index was
    /// built; `None` if it was not.
    #[serde(default)]
    pub recall: Option<f64>,
}

/// A branch of a table: a line of versions that began at a version of another branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchInfo {
    /// The name of the branch.
    pub name: String,
    /// The branch that it began at; `None` for the main branch.
    pub parent_branch: Option<String>,
    /// The version that it began at.
    pub parent_version: u64,
    /// When the branch was created, in milliseconds since 1970 UTC.
    pub created_millis: i64,
}
