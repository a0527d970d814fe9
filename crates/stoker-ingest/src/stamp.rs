//! Detects that a source file changed after it was listed.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use stoker_buckets::ListedObject;
use stoker_types::DigestBuilder;

/// The length of a file with its modification time or, in a bucket, its ETag. The digest of an ingest contains only these, not
/// the file's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The modification time, in nanoseconds since 1970; 0 when the system does not tell.
    modified_nanos: u128,
    /// What changes with the content of a file that is not on this machine: its ETag.
    version: Option<Arc<str>>,
}

/// The reason why a listed file cannot be read.
#[derive(Debug)]
pub(crate) enum StampError {
    /// The file changed or is gone. The text says what differs.
    Changed(String),
    /// The system refuses to read the file.
    Io(io::Error),
    /// The store of the file did not answer.
    Unreachable(String),
}

impl Stamp {
    pub fn of(status: &Metadata) -> Self {
        let modified = status.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self { bytes: status.len(), modified_nanos: modified.map_or(0, |age| age.as_nanos()), version: None }
    }

    pub fn of_object(object: &ListedObject) -> Self {
        // A store that says nothing else has at least the time.
        let version = match object.version.is_empty() {
            true => format!("modified {}", object.modified_nanos).into(),
            false => object.version.clone(),
        };
        Self { bytes: object.bytes, modified_nanos: u128::from(object.modified_nanos), version: Some(version) }
    }

    /// Returns the stamp of an input that no other one equals, whose length is not known.
    pub fn of_input(version: Arc<str>) -> Self {
        Self { version: Some(version), ..Self::default() }
    }

    /// Returns what changes with the content of a file that is not on this machine.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Returns what a listing said of an object.
    pub fn listed(&self) -> ListedObject {
        let modified_nanos = self.modified_nanos();
        let time = format!("modified {modified_nanos}");
        let version = self.version.clone().filter(|version| version.as_ref() != time).unwrap_or_default();
        ListedObject { bytes: self.bytes, version, modified_nanos }
    }

    /// Returns the modification time, in nanoseconds since 1970.
    pub fn modified_nanos(&self) -> u64 {
        u64::try_from(self.modified_nanos).unwrap_or(u64::MAX)
    }

    pub fn add_to(&self, digest: &mut DigestBuilder) {
        digest.update(&self.bytes.to_le_bytes());
        match &self.version {
            None => digest.update(&self.modified_nanos.to_le_bytes()),
            Some(version) => digest.update(version.as_bytes()),
        }
    }

    /// Opens the file that was listed at this path.
    pub fn open(&self, path: &Path) -> Result<File, StampError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StampError::Changed("it does not exist any more".into()),
            _ => StampError::Io(error),
        })?;
        self.check(&file)?;
        Ok(file)
    }

    /// Checks that an open file still is the listed one. Only then are the bytes that were read before the check those
    /// of the listed file: a file that another one replaced keeps its content while it is open, a file that is written
    /// to does not.
    pub fn check(&self, file: &File) -> Result<(), StampError> {
        let now = Self::of(&file.metadata().map_err(StampError::Io)?);
        if now == *self {
            return Ok(());
        }
        Err(StampError::Changed(match now.bytes == self.bytes {
            true => "it was modified after it had been listed".into(),
            false => format!("it had {} bytes when it was listed and has {} now", self.bytes, now.bytes),
        }))
    }
}
