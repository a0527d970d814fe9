//! Writes of rows that become one version of a table.

use crate::TableName;
use crate::calls::WriteKey;

/// The effect of a write on the rows that its table has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The table must not exist.
    Create,
    /// The table must exist; the rows are appended.
    Append,
    /// The rows are appended to the table, which is created when it does not exist.
    CreateOrAppend,
    /// The new version holds only these rows.
    Overwrite,
}

impl WriteMode {
    /// All modes, in the order in which messages list them.
    pub const ALL: [WriteMode; 4] =
        [WriteMode::Create, WriteMode::Append, WriteMode::CreateOrAppend, WriteMode::Overwrite];

    /// The name of the mode, in requests and in Python.
    pub fn as_str(self) -> &'static str {
        match self {
            WriteMode::Create => "create",
            WriteMode::Append => "append",
            WriteMode::CreateOrAppend => "create_or_append",
            WriteMode::Overwrite => "overwrite",
        }
    }

    /// Returns the mode of a name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }

    /// Whether the rows are added to those of the table, if there is one.
    pub fn appends(self) -> bool {
        matches!(self, WriteMode::Append | WriteMode::CreateOrAppend)
    }
}

/// A write: where rows go, and how they are stored. The rows follow as record batches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRequest {
    /// The table.
    pub table: TableName,
    /// The effect on the rows that the table has.
    pub mode: WriteMode,
    /// The most rows of a fragment; `None` for the default.
    pub rows_per_fragment_max: Option<u64>,
    /// The most bytes of a page of a heavy column; `None` for the default.
    pub page_bytes: Option<u64>,
    /// Whether the schema's metadata has features of Hugging Face's `datasets`, by which columns are converted.
    pub has_features: bool,
    /// The key of the write, under which it takes effect once, however often it is made. `None` for a write that is made
    /// once.
    pub key: Option<WriteKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_names() {
        for mode in WriteMode::ALL {
            assert_eq!(WriteMode::parse(mode.as_str()), Some(mode));
        }
        assert_eq!(WriteMode::parse("replace"), None);
        assert!(WriteMode::Append.appends() && !WriteMode::Overwrite.appends());
    }
}
