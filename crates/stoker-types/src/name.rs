//! Names of tables, tags, runs and principals.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The name of a table: 1 to 128 of `A-Z a-z 0-9 _ - .`, beginning with a letter, a digit or `_`, without `..` and not
/// ending in `.lance`.
///
/// A branch of a table has the name of the table, `@`, and the name of the branch, which follows the same rules:
/// `photos@dev`. Such a name stands for a table that has the rows of its branch.
///
/// A path made of a name can therefore never leave its lake: a name has no separator, no `..` and no escape sequence.
///
/// ```
/// use stoker_types::TableName;
/// let name = TableName::try_new("photos@dev")?;
/// assert_eq!((name.root().as_str(), name.branch()), ("photos", Some("dev")));
/// # Ok::<(), stoker_types::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName(String);

/// The branch on which every table begins. It has the name of the table alone.
pub const MAIN_BRANCH: &str = "main";

/// What stands between the name of a table and that of a branch.
const OF_BRANCH: char = '@';

/// The name of a tag. It follows the rules of [`TableName`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TagName(String);

/// The name that the processes of one training run share. It follows the rules of [`TableName`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

/// The name of a client of a server, which belongs to a token or a certificate. It follows the rules of [`TableName`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PrincipalName(String);

fn check(what: &'static str, value: &str) -> Result<()> {
    let fail = |reason| Err(Error::InvalidName { what, value: value.chars().take(NAME_BYTES_MAX).collect(), reason });
    let Some(first) = value.bytes().next() else { return fail("it is empty") };
    if value.len() > NAME_BYTES_MAX {
        return fail("it is longer than 128 bytes");
    }
    if !(first.is_ascii_alphanumeric() || first == b'_') {
        return fail("it must begin with a letter, a digit or an underscore");
    }
    if !value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')) {
        return fail("only letters, digits, '_', '-' and '.' may occur");
    }
    if value.contains("..") || value.ends_with(".lance") {
        return fail("it must not contain '..' or end with '.lance'");
    }
    Ok(())
}

/// Checks the name of a table or of a branch of one.
fn check_table(what: &'static str, value: &str) -> Result<()> {
    let Some((table, branch)) = value.split_once(OF_BRANCH) else { return check(what, value) };
    check(what, table)?;
    check("name of a branch", branch)?;
    if branch == MAIN_BRANCH {
        let reason = "the main branch is the table itself: leave '@main' out";
        return Err(Error::InvalidName { what, value: value.to_string(), reason });
    }
    Ok(())
}

macro_rules! name {
    ($type:ident, $what:literal, $check:ident) => {
        impl $type {
            /// Parses a name.
            ///
            /// # Errors
            /// [`Error::InvalidName`] with the rule that the name breaks.
            pub fn try_new(value: impl Into<String>) -> Result<Self> {
                let value = value.into();
                $check($what, &value)?;
                Ok(Self(value))
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $type {
            type Err = Error;

            fn from_str(value: &str) -> Result<Self> {
                Self::try_new(value)
            }
        }

        impl TryFrom<String> for $type {
            type Error = Error;

            fn try_from(value: String) -> Result<Self> {
                Self::try_new(value)
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

/// The catalog that names of tables may begin with in SQL: the lake.
pub const CATALOG: &str = "lake";

/// The schema of all tables in SQL.
pub const SCHEMA: &str = "public";

name!(TableName, "table name", check_table);
name!(TagName, "tag", check);
name!(RunId, "run id", check);
name!(PrincipalName, "name", check);

impl TableName {
    /// The name of the branch; `None` for the main branch.
    pub fn branch(&self) -> Option<&str> {
        self.0.split_once(OF_BRANCH).map(|(_, branch)| branch)
    }

    /// The name of the table without that of a branch.
    #[must_use]
    pub fn root(&self) -> Self {
        Self(self.0.split(OF_BRANCH).next().unwrap_or_default().to_string())
    }

    /// The name of a branch of the same table. `main` is the table itself.
    ///
    /// # Errors
    /// [`Error::InvalidName`] with the rule that the name of the branch breaks.
    pub fn with_branch(&self, branch: &str) -> Result<Self> {
        match branch {
            MAIN_BRANCH => Ok(self.root()),
            branch => Self::try_new(format!("{}{OF_BRANCH}{branch}", self.root())),
        }
    }
}

impl PrincipalName {
    /// A name that the code itself gives. It must be valid.
    pub(crate) fn from_static(name: &'static str) -> Self {
        Self(name.to_string())
    }
}
