//! What lies at the root of a lake that has no tables: for a hint to those who gave another path than they meant.

use std::fmt;
use std::io::ErrorKind as IoErrorKind;

use crate::{Error, Lake, Result};

/// What lies where a lake should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A lake without tables: a folder, or a prefix of an object store, where nothing need be.
    Empty,
    /// No folder of this machine.
    Missing(String),
    /// A file of this machine.
    File(String),
    /// A table, which has no tables.
    Table(String),
}

impl Lake {
    /// What lies at the root, of which it is known that it has no tables. One listing.
    ///
    /// # Errors
    /// Storage errors.
    pub(crate) async fn place_without_tables(&self) -> Result<Place> {
        let uri = self.uri().to_string();
        if self.is_local() {
            match std::fs::metadata(&uri) {
                Ok(status) if !status.is_dir() => return Ok(Place::File(uri)),
                Err(error) if error.kind() == IoErrorKind::NotFound => return Ok(Place::Missing(uri)),
                _ => {}
            }
        }
        let attempted = || format!("listing {uri}/_versions");
        let versions = self.list(&self.inner.base.clone().join("_versions"), attempted).await?;
        Ok(if versions.is_empty() { Place::Empty } else { Place::Table(uri) })
    }
}

impl Place {
    /// An error for those who wanted to list tables here; `None` for a lake.
    pub fn error(&self) -> Option<Error> {
        match self {
            Place::Empty => None,
            Place::Missing(uri) => {
                let hint = "; check the path: the folder is made with the first table that is written to it".into();
                Some(Error::NotFound { what: format!("the lake {uri}"), hint })
            }
            Place::File(uri) | Place::Table(uri) => Some(Error::InvalidRequest {
                attempted: format!("listing the tables of {uri}"),
                reason: self.to_string(),
            }),
        }
    }
}

/// The end of a sentence about a table that does not exist.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Empty => f.write_str("the lake has no tables"),
            Place::Missing(uri) => write!(f, "there is no folder {uri}: check the path of the lake"),
            Place::File(uri) => write!(f, "{uri} is a file; a lake is the folder that holds the tables"),
            Place::Table(uri) => {
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
