//! How documents are packed into sequences of one length.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The largest number of packs in a group.
pub(crate) const GROUP_PACKS_MAX: u64 = 256;

/// The smallest and the largest number of tokens in a pack.
const LENGTH_MIN: u64 = 2;
const LENGTH_MAX: u64 = 1 << 24;

/// The tokens of a group at least, if its number of packs allows it. A reader of one pack of a group reads documents all
/// over the group, so that groups are small; those that are four times as large would leave 0.1 % less room.
const GROUP_TOKENS: u64 = 1 << 16;

/// The number of packs in a group at least, so that documents find a pack that they fit.
const GROUP_PACKS_MIN: u64 = 8;

/// A request to fill sequences with whole documents.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PackOptions {
    /// The columns of lists that are packed, which have as many values in each row. The first one has the tokens.
    pub columns: Vec<String>,
    /// The number of tokens in a pack, 2 to 2^24.
    pub length: u64,
    /// The column with the number of tokens of each row. Without one, the first column is read to count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lengths: Option<String>,
    /// The value that fills the rest of a pack.
    pub pad: i64,
}

impl PackOptions {
    /// Checks everything that can be checked without the query.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming what is wrong.
    pub fn validate(&self) -> Result<()> {
        let fail = |reason: String| Err(Error::InvalidValue { what: "pack", reason });
        if !(LENGTH_MIN..=LENGTH_MAX).contains(&self.length) {
            let length = self.length;
            return fail(format!("its length is {length}; it must be between {LENGTH_MIN} and {LENGTH_MAX} tokens"));
        }
        if self.columns.is_empty() {
            return fail("it names no column; name the column with the tokens".into());
        }
        match self.columns.iter().enumerate().find(|(index, name)| self.columns[..*index].contains(name)) {
            Some((_, name)) => fail(format!("it names column {name} twice")),
            None => Ok(()),
        }
    }

    /// Returns the number of packs that are filled together.
    pub fn group_packs(&self) -> u64 {
        (GROUP_TOKENS / self.length.max(1)).clamp(GROUP_PACKS_MIN, GROUP_PACKS_MAX)
    }
}

impl fmt::Display for PackOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { columns, length, lengths, pad } = self;
        write!(f, "{} in {length} tokens, padded with {pad}", columns.join(", "))?;
        match lengths {
            Some(lengths) => write!(f, ", lengths in {lengths}"),
            None => Ok(()),
        }
    }
}
