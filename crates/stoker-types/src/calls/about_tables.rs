//! Calls about tables and queries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::calls::SchemaText;
use crate::{ParamValue, Result, SnapshotRef, TableName};

/// Checks the fields of a call; calls of other modules have nothing to check.
pub(super) trait Checked {
    fn checked(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Asks for the names of all tables, sorted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListTables {}

impl Checked for ListTables {}

/// A table at a snapshot, as calls name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TableAt {
    /// The name of the table; a request without one is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The version; the newest one where neither it nor a tag is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The tag of the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
}

impl TableAt {
    /// A table at a snapshot. The name is checked where the call is answered.
    pub fn new(table: &str, at: &SnapshotRef) -> Self {
        let (version, tag) = match at {
            SnapshotRef::Latest => (None, None),
            SnapshotRef::Version(version) => (Some(*version), None),
            SnapshotRef::Tag(tag) => (None, Some(tag.clone())),
        };
        Self { table: Some(table.to_string()), version, tag }
    }

    /// The name of the table.
    ///
    /// # Errors
    /// A name that no table can have.
    pub fn name(&self) -> Result<TableName> {
        TableName::try_new(self.table.as_deref().unwrap_or_default())
    }

    /// The snapshot.
    pub fn at(&self) -> SnapshotRef {
        match (self.version, &self.tag) {
            (Some(version), _) => SnapshotRef::Version(version),
            (None, Some(tag)) => SnapshotRef::Tag(tag.clone()),
            (None, None) => SnapshotRef::Latest,
        }
    }
}

impl Checked for TableAt {
    fn checked(&self) -> Result<(), String> {
        match (self.version, &self.tag) {
            _ if self.table.is_none() => Err("needs a table".into()),
            (Some(version), Some(tag)) => {
                Err(format!("takes a version or a tag, not both; these are version {version} and tag {tag:?}"))
            }
            _ => Ok(()),
        }
    }
}

macro_rules! about_table {
    ($( $(#[$doc:meta])* $call:ident )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(transparent)]
            pub struct $call(pub TableAt);

            impl Checked for $call {
                fn checked(&self) -> Result<(), String> {
                    self.0.checked()
                }
            }
        )*
    };
}

about_table! {
    /// Asks what a table is at a snapshot.
    OpenTable
    /// Asks for the versions of a table that still exist, oldest first.
    ListVersions
    /// Asks how the columns of a table are stored.
    DescribeTable
    /// Asks what in the layout of a table costs speed or safety, and what to do about it.
    ExamineTable
}

/// The answer to [`OpenTable`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableAnswer {
    /// The name of the table.
    pub name: String,
    /// The pinned version.
    pub version: u64,
    /// Rows at that version.
    pub num_rows: u64,
    /// The Arrow schema.
    pub schema: SchemaText,
    /// All tags of the table and the versions that they name.
    pub tags: BTreeMap<String, u64>,
    /// What the version takes in storage; `None` from servers that do not tell it.
    #[serde(default)]
    pub size: Option<TableSize>,
}

/// What a version of a table takes in storage, as its manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSize {
    /// The bytes of all data files, without indexes and older versions.
    pub bytes: u64,
    /// The number of fragments.
    pub num_fragments: u64,
    /// The number of rows that are in the data files and are marked as deleted.
    pub num_deleted_rows: u64,
}

/// Gives a version of a table a tag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagVersion {
    /// The name of the table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The version; the newest one where neither it nor a tag is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Another tag of the version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The new tag.
    pub new_tag: String,
}

impl TagVersion {
    /// The table and the version.
    pub fn table_at(&self) -> TableAt {
        TableAt { table: self.table.clone(), version: self.version, tag: self.tag.clone() }
    }
}

impl Checked for TagVersion {
    fn checked(&self) -> Result<(), String> {
        match self.new_tag.is_empty() {
            true => Err("needs new_tag".into()),
            false => self.table_at().checked(),
        }
    }
}

/// Asks for the plan of a query, as text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExplainQuery {
    /// The query: one SELECT.
    pub sql: String,
    /// Its positional parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamValue>,
    /// Whether approximate results are allowed, as for [`QueryOptions::approximate`](crate::QueryOptions::approximate).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub approximate: bool,
}

impl Checked for ExplainQuery {
    fn checked(&self) -> Result<(), String> {
        if self.sql.is_empty() { Err("needs sql".into()) } else { Ok(()) }
    }
}
