//! Errors of pages.

/// The result of functions that read pages.
pub(crate) type Result<T, E = BadPage> = std::result::Result<T, E>;

/// A page whose bytes no writer would have written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadPage {
    /// What is wrong with the page.
    pub reason: String,
}

impl BadPage {
    pub(crate) fn new(reason: impl ToString) -> Self {
        Self { reason: reason.to_string() }
    }
}

/// A sound page that this crate does not decode. Lance's decoder reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unsupported {
    /// What is different about the page.
    pub reason: &'static str,
}
