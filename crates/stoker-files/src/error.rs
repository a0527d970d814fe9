//! Errors of this crate.

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a file of a dataset.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system or the store refused to read a file.
    #[error("could not read {file}: {source}")]
    Read {
        /// The name of the file in its folder.
        file: String,
        /// The error of the system or the store.
        source: std::io::Error,
    },
    /// A file is not what its format says.
    #[error("{file}: {reason}")]
    Malformed {
        /// The name of the file in its folder.
        file: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// A column has values that tables cannot have, or that differ from one file to the next.
    #[error("{file}, column {column}: {reason}")]
    Column {
        /// The name of the file in its folder.
        file: String,
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// An option does not fit the files.
    #[error("option {option}: {reason}")]
    InvalidOption {
        /// The option, as the command line has it.
        option: String,
        /// Why, and what would fit.
        reason: String,
    },
}

impl Error {
    /// Makes the error for a file that cannot be read.
    pub fn read(file: &str, source: std::io::Error) -> Self {
        Self::Read { file: file.into(), source }
    }

    /// Makes the error for a file that is not what its format says.
    pub fn malformed(file: &str, reason: impl ToString) -> Self {
        Self::Malformed { file: file.into(), reason: reason.to_string() }
    }
}
