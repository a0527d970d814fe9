//! Errors of parsing and validating the types of this crate.

use crate::{EpochOptions, ErrorKind, HasKind};

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

/// Tells how to continue, if the stream has other weights, packs or buckets than the state, or reads another version of a
/// table.
fn way_out(differences: &[String]) -> &'static str {
    let has_options = differences.iter().any(|line| EpochOptions::is_line(line));
    let has_snapshots = differences.iter().any(|line| line.starts_with("snapshots: "));
    match (has_options, has_snapshots) {
        (true, _) => {
            "; plan the stream with the weight, pack and bucket that the state has, or use lake.resume(state, …), or \
             `stoker stream --state …` without a query, which take them from the state"
        }
        (false, true) => {
            "; to continue with the versions that the state pins, use lake.resume(state, …), or \
             `stoker stream --state …` without a query"
        }
        (false, false) => "",
    }
}
