//! How rows of similar length are grouped under a limit of tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The largest limit of tokens, and the largest multiple.
const TOKENS_MAX: u64 = 1 << 40;

/// What happens to a row that has more tokens than a bucket may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongerRows {
    /// The row is a bucket of its own.
    #[default]
    Alone,
    /// The stream is not made: an error names the row.
    Error,
}

impl LongerRows {
    /// Returns the name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            LongerRows::Alone => "alone",
            LongerRows::Error => "error",
        }
    }

    /// Returns the one with this name.
    pub fn parse(name: &str) -> Option<Self> {
        [LongerRows::Alone, LongerRows::Error].into_iter().find(|longer| longer.as_str() == name)
    }

    fn is_alone(&self) -> bool {
        *self == LongerRows::Alone
    }
}

/// A request to group rows of similar length into buckets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketOptions {
    /// The column that tells the length of each row: a column of lists, or one of whole numbers.
    pub column: String,
    /// The largest number of tokens in a bucket, 1 to 2^40: its rows times its longest row.
    pub max_tokens: u64,
    /// The largest number of rows in a bucket, or `None` for as many as `max_tokens` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rows: Option<u64>,
    /// The longest row counts as a multiple of this number of tokens, to which it will be padded; at least 1.
    pub multiple: u64,
    /// What happens to a row that has more than `max_tokens` when it is padded.
    #[serde(default, skip_serializing_if = "LongerRows::is_alone")]
    pub longer: LongerRows,
}

impl BucketOptions {
    /// Checks everything that can be checked without the query.
    ///
    /// # Errors
    /// [`Error::InvalidValue`] naming what is wrong.
    pub fn validate(&self) -> Result<()> {
        let fail = |reason: String| Err(Error::InvalidValue { what: "bucket", reason });
        let Self { column, max_tokens, max_rows, multiple, longer: _ } = self;
        if column.is_empty() {
            return fail("it names no column; name the column with the tokens, or with their number".into());
        }
        if !(1..=TOKENS_MAX).contains(max_tokens) {
            return fail(format!("its max_tokens is {max_tokens}; it must be between 1 and {TOKENS_MAX}"));
        }
        if *max_rows == Some(0) {
            return fail("its max_rows is 0; it must be at least 1".into());
        }
        if !(1..=*max_tokens).contains(multiple) {
            return fail(format!("its multiple is {multiple}; it must be between 1 and max_tokens, {max_tokens}"));
        }
        Ok(())
    }
}

impl fmt::Display for BucketOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { column, max_tokens, max_rows, multiple, longer } = self;
        write!(f, "{max_tokens} tokens by {column}")?;
        if let Some(rows) = max_rows {
            write!(f, ", {rows} rows")?;
        }
        if *multiple > 1 {
            write!(f, ", in multiples of {multiple}")?;
        }
        match longer {
            LongerRows::Alone => Ok(()),
            LongerRows::Error => write!(f, ", without longer rows"),
        }
    }
}
