//! Notices that a source file is not the one that was listed any more.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use stoker_types::DigestBuilder;

/// The length of a file and when it was modified: what the digest of an ingest knows of the file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Bytes of the file.
    pub bytes: u64,
    /// When it was modified, in nanoseconds since 1970; 0 when nobody knows.
    modified_nanos: u128,
}

/// Why a listed file cannot be read.
#[derive(Debug)]
pub(crate) enum StampError {
    /// It is another file now, or gone. With what differs, for messages.
    Changed(String),
    /// The system refuses.
    Io(io::Error),
}

impl Stamp {
    pub fn of(status: &Metadata) -> Self {
        let modified = status.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self { bytes: status.len(), modified_nanos: modified.map_or(0, |age| age.as_nanos()) }
    }

    /// When it was modified, in nanoseconds since 1970.
    pub fn modified_nanos(&self) -> u64 {
        u64::try_from(self.modified_nanos).unwrap_or(u64::MAX)
    }

    pub fn add_to(&self, digest: &mut DigestBuilder) {
        digest.update(&self.bytes.to_le_bytes());
        digest.update(&self.modified_nanos.to_le_bytes());
    }

    /// Opens the file that was listed at this path.
    pub fn open(&self, path: &Path) -> Result<File, StampError> {
        let file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => StampError::Changed("it is gone".into()),
            _ => StampError::Io(error),
        })?;
        self.check(&file)?;
        Ok(file)
    }

    /// Whether an open file still is what was listed. What was read from it before is only then what was listed, too: a file
    /// that another one replaced stays readable as it was, one that is written to does not.
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
