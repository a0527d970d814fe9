//! Errors of lakes and tables.

use std::error::Error as StdError;

use datafusion::error::DataFusionError;
use lance_core::error::CommitStatusUnknownError;
use stoker_store::{Finding, first_line, is_of_outage, is_of_overload};
use stoker_types::{ErrorKind, HasKind};

use crate::damage::Panicked;

/// Parts of Lance's messages about bytes that it cannot decode. The functions of Lance 14.0.2 that are named here
/// return I/O errors that have nothing but a message.
const UNDECODABLE: [&str; 4] = [
    // `lance_io::utils::read_message`
    "file size is too small",
    // `lance_io::utils::read_metadata_offset`, `lance_io::utils::read_version`
    "does not have sufficient data",
    // `lance::index::scalar::fetch_index_details` and functions of `lance::index::scalar::inverted`
    "failed to decode InvertedIndexDetails payload",
    // the decoder of `lance::index::vector::ivf::v2::IvfIndexState`
    "IVF decode: ",
];

/// The result of this crate's fallible functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a lake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URI of a lake cannot be used.
    #[error("cannot open a lake at {uri:?}: {reason}")]
    InvalidUri {
        /// The URI, without credentials.
        uri: String,
        /// What is wrong and what would be right.
        reason: String,
    },
    /// The store of a lake is not atomic, so that commits would be lost.
    #[error("{lake} cannot be written, commits would be lost: {reason}; use a store that creates objects atomically")]
    UnsafeStore {
        /// The lake and its endpoint.
        lake: String,
        /// What failed.
        reason: String,
    },
    /// A table, version, tag or row does not exist.
    #[error("{what} does not exist{hint}")]
    NotFound {
        /// What was looked for, and where.
        what: String,
        /// What exists instead, beginning with `; ` or empty.
        hint: String,
    },
    /// A table that should be created exists already.
    #[error("table {table} already exists in {lake}; append to it, overwrite it or choose another name")]
    TableExists {
        /// The table.
        table: String,
        /// The lake.
        lake: String,
    },
    /// An index that should be created exists already.
    #[error("index {index} of table {table} already exists; drop it first, or write CREATE OR REPLACE INDEX")]
    IndexExists {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// A tag that should be created exists already.
    #[error("tag '{tag}' of table {table} already exists and names version {version}; delete it first")]
    TagExists {
        /// The table.
        table: String,
        /// The tag.
        tag: String,
        /// The version that it names.
        version: u64,
    },
    /// A branch that should be created exists already.
    #[error("branch '{branch}' of table {table} already exists; choose another name, or drop it first")]
    BranchExists {
        /// The table.
        table: String,
        /// The branch.
        branch: String,
    },
    /// Rows were chosen by a version of the table, and another commit came after that version.
    #[error("another ingest committed version {version} of table {table} meanwhile; run the same command again")]
    Overtaken {
        /// The table.
        table: String,
        /// The version of the other commit.
        version: u64,
    },
    /// A change was computed on a version of a table, and later commits changed what it depends on. The table does not
    /// have the change.
    #[error("version {version} of table {table} came in between: {what}; run the statement again")]
    Conflict {
        /// The table.
        table: String,
        /// The newest version of the table.
        version: u64,
        /// What others did.
        what: String,
    },
    /// The new values of a change need more memory than it may use.
    #[error(
        "the new values of the changed rows of table {table} need more than {bytes_max} bytes of memory: change the \
         rows in parts, for example by a condition on a range of a key, or raise the limit"
    )]
    ChangeTooLarge {
        /// The table.
        table: String,
        /// The limit.
        bytes_max: u64,
    },
    /// The data does not fit the table.
    #[error("cannot write to table {table}: {reason}")]
    InvalidData {
        /// The table.
        table: String,
        /// Which column and row, what was expected and what was found.
        reason: String,
    },
    /// A request names something that the table does not have, or asks for something impossible.
    #[error("{attempted}: {reason}")]
    InvalidRequest {
        /// What was attempted, on which table.
        attempted: String,
        /// Why it cannot be done.
        reason: String,
    },
    /// Stored bytes are damaged.
    #[error("{attempted}: the data is damaged: {reason}")]
    DataCorrupt {
        /// What was attempted, on which table or file.
        attempted: String,
        /// What was found.
        reason: String,
    },
    /// Stored bytes of some rows are damaged; other rows of the same file may be intact.
    #[error("{attempted}: the data is damaged: {reason}")]
    DamagedRows {
        /// What was attempted, on which table.
        attempted: String,
        /// Which bytes of which file.
        reason: String,
    },
    /// A client created as many objects or bytes beside the tables as the server allows it in a day.
    #[error(
        "{holder} has used up its {limit} per day, which new streams and runs write to the lake: use streams that were \
         planned before, try again in {hours} h, or ask the operator of the server for a higher limit \
         (--reader-objects-per-day, --reader-bytes-per-day)"
    )]
    AllowanceSpent {
        /// The client that the allowance belongs to.
        holder: String,
        /// The limit that was reached, for example `10 bytes`.
        limit: String,
        /// Hours until the next period of the allowance begins.
        hours: u64,
    },
    /// Whether a commit took effect is unknown.
    #[error(
        "{attempted}: the outcome is unknown: {reason}; check whether the newest version has the rows before you write \
         them again"
    )]
    OutcomeUnknown {
        /// What was attempted, on which table.
        attempted: String,
        /// Why it is unknown.
        reason: String,
    },
    /// A request to storage failed.
    #[error("{attempted}: {}", first_line(source))]
    Storage {
        /// What was attempted, on which URI.
        attempted: String,
        /// The kind that follows from the cause.
        kind: ErrorKind,
        /// The cause.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl Error {
    /// The kind of the error, which says what a caller should do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::InvalidUri { .. }
            | Error::UnsafeStore { .. }
            | Error::InvalidData { .. }
            | Error::InvalidRequest { .. } => ErrorKind::InvalidRequest,
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::TableExists { .. }
            | Error::IndexExists { .. }
            | Error::TagExists { .. }
            | Error::BranchExists { .. } => ErrorKind::AlreadyExists,
            Error::Conflict { .. } | Error::Overtaken { .. } | Error::OutcomeUnknown { .. } => ErrorKind::Unavailable,
            Error::AllowanceSpent { .. } | Error::ChangeTooLarge { .. } => ErrorKind::ResourceExhausted,
            Error::DataCorrupt { .. } | Error::DamagedRows { .. } => ErrorKind::DataCorrupt,
            Error::Storage { kind, .. } => *kind,
        }
    }

    /// Whether the store has more requests than it can serve: it said so, or it did not respond before the timeout.
    pub fn is_overload(&self) -> bool {
        let Error::Storage { kind: ErrorKind::Unavailable, source, .. } = self else { return false };
        is_of_overload(source.as_ref())
    }

    /// Whether the request failed or was held back during an outage of the store. A retry may follow at once without
    /// load on the store: during an outage, requests are held back until the store answers one of them, each for five
    /// seconds at most.
    pub fn is_outage(&self) -> bool {
        let Error::Storage { kind: ErrorKind::Unavailable, source, .. } = self else { return false };
        is_of_outage(source.as_ref())
    }

    /// Makes an error of the storage layer, whose kind follows from its cause.
    pub(crate) fn storage(attempted: impl Into<String>, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        stoker_store::Error::storage(attempted, source, interpret).into()
    }

    /// Returns the error of a scan that is under way, see [`Table::scan`](crate::Table::scan).
    pub(crate) fn of_scan(attempted: impl Into<String>, source: DataFusionError) -> Self {
        match source {
            DataFusionError::External(source) => match source.downcast::<Error>() {
                Ok(error) => *error,
                Err(source) => Error::storage(attempted, source),
            },
            source => Error::storage(attempted, source),
        }
    }
}

impl HasKind for Error {
    fn kind(&self) -> ErrorKind {
        Error::kind(self)
    }
}

impl From<stoker_store::Error> for Error {
    fn from(error: stoker_store::Error) -> Self {
        match error {
            stoker_store::Error::InvalidUri { uri, reason } => Error::InvalidUri { uri, reason },
            stoker_store::Error::UnsafeStore { lake, reason } => Error::UnsafeStore { lake, reason },
            stoker_store::Error::DataCorrupt { attempted, reason } => Error::DataCorrupt { attempted, reason },
            stoker_store::Error::DamagedRows { attempted, reason } => Error::DamagedRows { attempted, reason },
            stoker_store::Error::Storage { attempted, kind, source } => Error::Storage { attempted, kind, source },
        }
    }
}

/// Says what errors of Lance mean for the kind of an error.
pub(crate) fn interpret(error: &(dyn StdError + 'static)) -> Option<Finding> {
    if error.is::<Panicked>() {
        return Some(Finding::Certain(ErrorKind::DataCorrupt));
    }
    // The outcome of the commit is unknown, whatever error the store returned last.
    if error.is::<CommitStatusUnknownError>() {
        return Some(Finding::Certain(ErrorKind::Unavailable));
    }
    if error.is::<prost::DecodeError>() || error.is::<prost::UnknownEnumValue>() {
        return Some(Finding::Certain(ErrorKind::DataCorrupt));
    }
    // An error that Lance returns to several callers is shared between them.
    let finding = match error.downcast_ref::<lance_core::Error>()?.find_root() {
        lance_core::Error::NotFound { .. }
        | lance_core::Error::DatasetNotFound { .. }
        | lance_core::Error::VersionNotFound { .. }
        | lance_core::Error::RefNotFound { .. } => Finding::Certain(ErrorKind::NotFound),
        lance_core::Error::DatasetAlreadyExists { .. } | lance_core::Error::RefConflict { .. } => {
            Finding::Certain(ErrorKind::AlreadyExists)
        }
        lance_core::Error::CorruptFile { .. } => Finding::Certain(ErrorKind::DataCorrupt),
        lance_core::Error::InvalidInput { .. }
        | lance_core::Error::SchemaMismatch { .. }
        | lance_core::Error::Schema { .. }
        | lance_core::Error::FieldNotFound { .. }
        | lance_core::Error::NotSupported { .. }
        | lance_core::Error::InvalidRef { .. } => Finding::Likely(ErrorKind::InvalidRequest),
        lance_core::Error::CommitConflict { .. }
        | lance_core::Error::RetryableCommitConflict { .. }
        | lance_core::Error::TooMuchWriteContention { .. }
        | lance_core::Error::Timeout { .. } => Finding::Likely(ErrorKind::Unavailable),
        lance_core::Error::IO { source, .. } if is_undecodable(source.as_ref()) => {
            Finding::Certain(ErrorKind::DataCorrupt)
        }
        lance_core::Error::IO { .. } => Finding::Likely(ErrorKind::Unavailable),
        _ => return None,
    };
    Some(finding)
}

/// Whether bytes were read but could not be decoded, as far as only the message says so.
fn is_undecodable(source: &dyn StdError) -> bool {
    let text = source.to_string();
    UNDECODABLE.iter().any(|part| text.contains(part))
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        DataFusionError::External(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use lance_core::error::CloneableError;
    use lance_io::object_store::ObjectStore;
    use lance_io::utils::{read_message, read_metadata_offset, read_version};
    use lance_table::format::pb::Manifest;
    use object_store::path::Path;
    use stoker_types::ErrorKind;

    use super::Error;

    fn kind(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ErrorKind {
        Error::storage("reading", source).kind()
    }

    /// The error of Lance when it reads a manifest from a file with these bytes.
    async fn unreadable(bytes: &[u8]) -> lance_core::Error {
        let (store, path) = (ObjectStore::memory(), Path::from("a"));
        store.put(&path, bytes).await.expect("written");
        let reader = store.open(&path).await.expect("a file");
        read_message::<Manifest>(reader.as_ref(), 0).await.expect_err("no manifest")
    }

    #[tokio::test]
    async fn bytes_that_lance_cannot_decode_are_damage() {
        // A message is preceded by its length. This one has an invalid wire type.
        let undecodable = [3, 0, 0, 0, 0xff, 0xff, 0xff];
        let errors = [
            unreadable(&undecodable).await,
            lance_core::Error::from(prost::UnknownEnumValue(9)),
            unreadable(&undecodable[..3]).await,
            unreadable(&undecodable[..6]).await,
            read_metadata_offset(&Bytes::from_static(&[0; 15])).expect_err("no offset"),
            read_version(&Bytes::from_static(&[0; 7])).expect_err("no version"),
        ];
        for error in errors {
            let text = error.to_string();
            assert!(matches!(error, lance_core::Error::IO { .. }), "{text}");
            let one = CloneableError::new(error);
            let shared = one.clone().into_inner();
            assert!(matches!(shared, lance_core::Error::Shared { .. }));
            assert_eq!(kind(shared), ErrorKind::DataCorrupt, "{text}");
            assert_eq!(kind(one.into_inner()), ErrorKind::DataCorrupt, "{text}");
        }
        assert_eq!(kind(lance_core::Error::io("connection reset".to_string())), ErrorKind::Unavailable);
    }

    #[test]
    fn a_commit_of_unknown_outcome_is_no_bug() {
        let conflict = || lance_core::Error::io("a conflict, and the manifest could not be read back".to_string());
        let unknown = lance_core::Error::commit_status_unknown_source(34, Box::new(conflict()));
        assert_eq!(kind(unknown), ErrorKind::Unavailable);
        let unknown = lance_core::Error::commit_status_unknown_source(34, "no answer".into());
        assert_eq!(kind(unknown), ErrorKind::Unavailable);
    }

    #[test]
    fn outages_are_known_although_lance_wraps_their_errors() {
        let out = || object_store::Error::from(stoker_store::Out::default());
        let wrapped = Error::storage("reading", lance_core::Error::io_source(Box::new(out())));
        assert_eq!((wrapped.kind(), wrapped.is_outage()), (ErrorKind::Unavailable, true), "{wrapped}");
        let other = lance_core::Error::io("connection reset".to_string());
        assert!(!Error::storage("reading", other).is_outage());
    }

    #[test]
    fn errors_of_stores_keep_their_message_and_kind() {
        let reason = || "a reason".to_string();
        let of_store = || {
            let source = "https://me:secret@host/a refused".into();
            [
                stoker_store::Error::InvalidUri { uri: "ftp://host".into(), reason: reason() },
                stoker_store::Error::UnsafeStore { lake: "s3://bucket".into(), reason: reason() },
                stoker_store::Error::DataCorrupt { attempted: "reading".into(), reason: reason() },
                stoker_store::Error::DamagedRows { attempted: "reading".into(), reason: reason() },
                stoker_store::Error::Storage { attempted: "reading".into(), kind: ErrorKind::Unavailable, source },
            ]
        };
        for (found, expected) in of_store().map(Error::from).into_iter().zip(of_store()) {
            assert_eq!((found.to_string(), found.kind()), (expected.to_string(), expected.kind()));
        }
    }
}
