//! Where the files of sources are: on this machine, in a bucket, or on standard input.
//!
//! ```text
//! paths, URIs ──open_sources──► SourcePlace, NamedSource … ──walk──► Entry: path, stamp
//!                                 └─ open(path, stamp) ──► OpenFile, which knows whether it is the listed file
//! ```

mod named_source;
mod object_file;
mod open_file;
mod standard_input;
mod walk_objects;

use std::path::Path;
use std::sync::Arc;

use stoker_buckets::{Bucket, FetchAhead};

pub(crate) use named_source::{NamedSource, NamedSources, SourceContents, shown};
pub(crate) use object_file::ObjectFile;
pub(crate) use open_file::OpenFile;
pub(crate) use standard_input::{NAME as INPUT_NAME, StandardInput};
pub(crate) use walk_objects::walk_objects;

use crate::stamp::{Stamp, StampError};

/// Where the files of an ingest are.
#[derive(Clone, Debug, Default)]
pub(crate) enum SourcePlace {
    /// On this machine.
    #[default]
    Local,
    /// In a bucket, or on a web server.
    Bucket(Bucket),
    /// On standard input, which is one file.
    Input(Arc<StandardInput>),
}

impl SourcePlace {
    /// Opens the file that was listed at a path. For a file of a bucket, no request is made.
    pub fn open(&self, path: &Path, stamp: &Stamp) -> Result<OpenFile, StampError> {
        match self {
            SourcePlace::Local => Ok(OpenFile::Local(stamp.open(path)?, stamp.clone())),
            SourcePlace::Bucket(bucket) => {
                let uri = path.to_string_lossy();
                let elsewhere = || StampError::Io(std::io::Error::other("the file is in another bucket"));
                let key = bucket.key(&uri).ok_or_else(elsewhere)?;
                Ok(OpenFile::Object(Arc::new(ObjectFile::new(bucket.file(key, &stamp.listed())))))
            }
            SourcePlace::Input(_) => Err(StampError::Io(std::io::Error::other("standard input is read once"))),
        }
    }

    /// Begins to fetch small files that will be opened soon, in this order, if they are in a bucket.
    pub fn fetch_ahead<'a>(&self, files: impl Iterator<Item = (&'a Path, &'a Stamp)>) -> Option<FetchAhead> {
        let SourcePlace::Bucket(bucket) = self else { return None };
        let listed =
            files.filter_map(|(path, stamp)| Some((bucket.key(&path.to_string_lossy())?.to_string(), stamp.listed())));
        Some(bucket.fetch_ahead(listed))
    }

    /// Whether the files are on this machine.
    pub fn is_local(&self) -> bool {
        matches!(self, SourcePlace::Local)
    }
}
