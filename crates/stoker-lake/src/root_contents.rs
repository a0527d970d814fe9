//! Finds out what lies at the root of a lake that has no tables, so that an error can hint at a mistaken path.

use std::fmt;
use std::io::ErrorKind as IoErrorKind;

use crate::{Error, LakeStore, Result};

/// What lies at the location where a lake is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RootContents {
    /// A lake without tables: a folder, or a prefix of an object store under which there may be no objects yet.
    Empty,
    /// A local path at which there is nothing.
    Missing(String),
    /// A local file.
    File(String),
    /// A table, given where the lake that holds it is expected.
    Table(String),
}

impl LakeStore {
    /// Returns what lies at the lake's root. The caller knows that the lake has no tables. Costs one listing.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) async fn place_without_tables(&self) -> Result<RootContents> {
        let uri = self.uri().to_string();
        if self.is_local() {
            match std::fs::metadata(&uri) {
                Ok(status) if !status.is_dir() => return Ok(RootContents::File(uri)),
                Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(RootContents::Missing(uri)),
                _ => {}
            }
        }
        let attempted = || format!("listing {uri}/_versions");
        let versions = self.list(&self.inner.base.clone().join("_versions"), attempted).await?;
        Ok(if versions.is_empty() { RootContents::Empty } else { RootContents::Table(uri) })
    }
}

impl RootContents {
    /// Returns the error for a caller that wanted to list the tables here; `None` if this is a lake.
    pub fn error(&self) -> Option<Error> {
        match self {
            RootContents::Empty => None,
            RootContents::Missing(uri) => {
                let hint = "; check the path: the folder is made with the first table that is written to it".into();
                Some(Error::NotFound { what: format!("the lake {uri}"), hint })
            }
            RootContents::File(uri) | RootContents::Table(uri) => Some(Error::InvalidRequest {
                attempted: format!("listing the tables of {uri}"),
                reason: self.to_string(),
            }),
        }
    }
}

/// Writes the last clause of a sentence about a table that does not exist.
impl fmt::Display for RootContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RootContents::Empty => f.write_str("the lake has no tables"),
            RootContents::Missing(uri) => write!(f, "there is no folder {uri}: check the path of the lake"),
            RootContents::File(uri) => write!(f, "{uri} is a file; a lake is the folder that holds the tables"),
            RootContents::Table(uri) => {
                let (lake, name) = uri.rsplit_once('/').unwrap_or((".", uri));
                let lake = if lake.is_empty() { "/" } else { lake };
                let name = name.strip_suffix(".lance").unwrap_or(name);
                write!(
                    f,
                    "{uri} is itself a table; give the folder that holds it, {lake}, as the lake, and {name} as the table"
                )
            }
        }
    }
}
