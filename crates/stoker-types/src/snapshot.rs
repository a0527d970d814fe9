//! Versions of tables: as requested, and pinned.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::TableName;

/// A reference to a version of a table, as it is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum SnapshotRef {
    /// The newest version at the time of the request.
    #[default]
    Latest,
    /// The version with this number.
    Version(u64),
    /// The version to which this tag points.
    Tag(String),
}

impl fmt::Display for SnapshotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotRef::Latest => f.write_str("the newest version"),
            SnapshotRef::Version(version) => write!(f, "version {version}"),
            SnapshotRef::Tag(tag) => write!(f, "tag '{tag}'"),
        }
    }
}

/// A pinned, immutable version of a table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Snapshot {
    /// The table.
    pub table: TableName,
    /// The version number.
    pub version: u64,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.table, self.version)
    }
}
