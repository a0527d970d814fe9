//! Errors of parsing and validating the types of this crate.

use crate::{ErrorKind, HasKind};

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A value that is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name has forbidden characters or length.
    #[error("{what} {value:?} is not valid: {reason}")]
    InvalidName {
        /// The kind of name, for example `table name` or `tag`.
        what: &'static str,
        /// The name as given, cut off after 128 characters.
        value: String,
        /// The rule that the name breaks.
        reason: &'static str,
    },
    /// A number or option is outside its range.
    #[error("{what} is not valid: {reason}")]
    InvalidValue {
        /// The option.
        what: &'static str,
        /// Why the value is not valid, with the value and the limit.
        reason: String,
    },
    /// A state or specification cannot be read.
    #[error("cannot read {what}: {reason}")]
    Malformed {
        /// The kind of document.
        what: &'static str,
        /// What is wrong with the document, and where.
        reason: String,
    },
    /// A receipt that cannot be used.
    #[error("cannot use the receipt: {reason}")]
    Receipt {
        /// What is wrong with it.
        reason: String,
    },
    /// A state belongs to another stream.
    #[error("the state belongs to another stream: {}{}", differences.join("; "), way_out(differences))]
    StateMismatch {
        /// One line for each field that differs: `seed: state has 7, stream has 8`.
        differences: Vec<String>,
    },
}

impl Error {
    /// Returns the kind of this error, which tells a caller what to do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidName { .. }
            | Error::InvalidValue { .. }
            | Error::Malformed { .. }
            | Error::Receipt { .. } => ErrorKind::InvalidRequest,
            Error::StateMismatch { .. } => ErrorKind::StateMismatch,
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}

/// Tells how to continue with the pinned version, if the stream reads another version of a table than the state names.
fn way_out(differences: &[String]) -> &'static str {
    match differences.iter().any(|line| line.starts_with("snapshots: ")) {
        true => {
            "; to continue with the versions that the state pins, use lake.resume(state, …), or \
             `stoker stream --state …` without a query"
        }
        false => "",
    }
}
