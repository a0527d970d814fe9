//! The files of an ingest, and what they hold.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use rayon::prelude::*;
use stoker_types::{Digest, DigestBuilder};

use crate::stamp::{Stamp, StampError};
use crate::{Error, Result, Skipped};

/// Bytes that are digested at a time: a part of the digest of a file.
const CHUNK_BYTES: u64 = 1 << 20;

/// A file that can become rows.
#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    /// Its path below the folder that was given, or its name if it was given itself.
    pub name: String,
    /// Where it is read, and how reports name it.
    pub path: PathBuf,
    /// Its absolute path; what is not UTF-8 is U+FFFD.
    pub absolute: String,
    /// What it was when it was listed.
    pub stamp: Stamp,
    /// In how many parts it is read, each of which may be left out by itself.
    pub parts: usize,
}

impl SourceFile {
    /// The digest of its bytes.
    pub fn digest(&self) -> Result<Digest, StampError> {
        let file = self.stamp.open(&self.path)?;
        let mut digest = DigestBuilder::new("stoker ingest file 1");
        let mut chunk = Vec::new();
        loop {
            chunk.clear();
            if Read::take(&file, CHUNK_BYTES).read_to_end(&mut chunk).map_err(StampError::Io)? == 0 {
                break;
            }
            digest.update(&chunk);
        }
        self.stamp.check(&file)?;
        Ok(digest.finish())
    }

    /// The error of a file that cannot be read.
    pub fn error(&self, error: StampError) -> Error {
        let path = self.path.clone();
        match error {
            StampError::Changed(change) => Error::Changed { path, change },
            StampError::Io(error) => Error::Unreadable { path, reason: error.to_string() },
        }
    }
}

/// Of which files parts were left out, and how many.
pub(crate) struct LeftOut<'a>(HashMap<&'a str, usize>);

impl<'a> LeftOut<'a> {
    pub fn of(skipped: &'a [Skipped]) -> Self {
        let mut parts = HashMap::new();
        for skipped in skipped {
            *parts.entry(skipped.path.as_str()).or_insert(0) += 1;
        }
        Self(parts)
    }

    /// Whether all parts of a file were left out.
    pub fn has(&self, file: &SourceFile) -> bool {
        !self.0.is_empty() && self.0.get(&*file.path.to_string_lossy()).is_some_and(|parts| *parts >= file.parts)
    }
}

/// The digests of files, on all cores; `None` for those that cannot be read and were left out.
pub(crate) fn digests(files: &[SourceFile], skipped: &[Skipped]) -> Result<Vec<Option<Digest>>> {
    let left_out = LeftOut::of(skipped);
    let digest = |file: &SourceFile| match file.digest() {
        Ok(digest) => Ok(Some(digest)),
        Err(StampError::Io(_)) if left_out.has(file) => Ok(None),
        Err(error) => Err(file.error(error)),
    };
    files.par_iter().map(digest).collect()
}
