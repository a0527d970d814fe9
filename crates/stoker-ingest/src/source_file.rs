//! The source files of an ingest, and their digests.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::PathBuf;

use rayon::prelude::*;
use stoker_types::{Digest, DigestBuilder};

use crate::place::SourcePlace;
use crate::stamp::{Stamp, StampError};
use crate::{Error, Result, Skipped};

/// The number of bytes that are read and digested at a time. The digest of a file depends on it.
const CHUNK_BYTES: u64 = 1 << 20;

/// A file that can become rows.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// The path below the folder that the user named, or the file's name if the user named the file itself.
    pub name: String,
    /// The path at which the file is read, and by which reports name it.
    pub path: PathBuf,
    /// The absolute path, or the URI. Bytes that are not UTF-8 are U+FFFD.
    pub absolute: String,
    /// The length, and the modification time or ETag, when the file was listed.
    pub stamp: Stamp,
    /// Where the file is.
    pub place: SourcePlace,
    /// The number of parts in which the file is read. Each can be skipped on its own.
    pub parts: usize,
}

impl SourceFile {
    /// Computes the digest of the file's bytes or, of a file that is not on this machine, of its ETag, so that it is not read
    /// a second time.
    pub fn digest(&self) -> Result<Digest, StampError> {
        match self.stamp.version() {
            Some(version) => Ok(DigestBuilder::new("stoker ingest version 1").part(version.as_bytes()).finish()),
            None => self.content_digest(),
        }
    }

    /// Computes the digest of the file's bytes, wherever it is.
    pub fn content_digest(&self) -> Result<Digest, StampError> {
        let file = self.place.open(&self.path, &self.stamp)?;
        let of_read = |error: io::Error| file.check().err().unwrap_or(StampError::Io(error));
        let mut reader = file.reader().map_err(of_read)?;
        let mut digest = DigestBuilder::new("stoker ingest file 1");
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            if Read::take(&mut reader, CHUNK_BYTES).read_to_end(&mut chunk).map_err(of_read)? == 0 {
                break;
            }
            digest.update(&chunk);
        }
        file.check()?;
        Ok(digest.finish())
    }

    /// Builds the error for a file that cannot be read.
    pub fn error(&self, error: StampError) -> Error {
        let path = self.path.clone();
        match error {
            StampError::Changed(change) => Error::Changed { path, change },
            StampError::Io(error) => Error::Unreadable { path, reason: error.to_string() },
            StampError::Unreachable(reason) => Error::Unreachable { path, reason },
        }
    }
}

/// The number of skipped parts of each file, by path.
pub(crate) struct LeftOut<'a>(HashMap<&'a str, usize>);

impl<'a> LeftOut<'a> {
    pub fn of(skipped: &'a [Skipped]) -> Self {
        let mut parts = HashMap::new();
        for skipped in skipped.iter().filter(|skipped| skipped.row.is_none()) {
            *parts.entry(skipped.path.as_str()).or_insert(0) += 1;
        }
        Self(parts)
    }

    /// Whether all parts of a file were skipped.
    pub fn has(&self, file: &SourceFile) -> bool {
        !self.0.is_empty() && self.0.get(&*file.path.to_string_lossy()).is_some_and(|parts| *parts >= file.parts)
    }
}

/// Computes the digests of files on all cores. The digest of a file that cannot be read and was skipped is `None`.
pub(crate) fn digests(files: &[SourceFile], skipped: &[Skipped]) -> Result<Vec<Option<Digest>>> {
    let left_out = LeftOut::of(skipped);
    let digest = |file: &SourceFile| match file.digest() {
        Ok(digest) => Ok(Some(digest)),
        Err(StampError::Io(_)) if left_out.has(file) => Ok(None),
        Err(error) => Err(file.error(error)),
    };
    files.par_iter().map(digest).collect()
}
