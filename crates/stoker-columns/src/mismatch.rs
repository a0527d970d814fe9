//! The error of values that do not fit their column.

/// A value, or the type of all values, that does not fit a column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {found}")]
pub struct Mismatch {
    /// The row, counted from the first value; `None` if the error concerns all rows.
    pub row: Option<usize>,
    /// What the column needs.
    pub expected: String,
    /// What was found.
    pub found: String,
}

impl Mismatch {
    pub(crate) fn new(row: Option<usize>, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { row, expected: expected.into(), found: found.into() }
    }
}
