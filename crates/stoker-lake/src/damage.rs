//! Errors of failed reads that name the damaged file of a table.

use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;

use futures::TryStreamExt;
use object_store::path::Path;
use stoker_store::first_line;
use stoker_types::ErrorKind;

use crate::{Error, Table};

impl Table {
    /// The error of a read whose arguments were valid. Lance reports damaged pages as invalid input or as I/O errors
    /// about ranges; both become `DataCorrupt`. When a data file is missing or has the wrong size, which one listing
    /// of the data folder shows, the error names the file.
    pub(crate) async fn read_error(
        &self,
        attempted: String,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        match decode_error(attempted, source) {
            Error::DataCorrupt { attempted, reason } => {
                let reason = self.damaged_file().await.unwrap_or(reason);
                Error::DataCorrupt { attempted, reason }
            }
            error => error,
        }
    }

    /// The error of a read for which the preceding check of its files failed. Names a missing or resized data file as
    /// [`Table::read_error`] does.
    pub(crate) async fn check_error(&self, attempted: String, error: Error) -> Error {
        match error {
            Error::DataCorrupt { attempted: checking, reason } => {
                let file = self.damaged_file().await;
                Error::DataCorrupt { attempted, reason: file.unwrap_or_else(|| format!("{checking}: {reason}")) }
            }
            error => error,
        }
    }

    /// Lists the data folders, and describes the first data file that is missing or whose size differs from the
    /// manifest.
    async fn damaged_file(&self) -> Option<String> {
        let store = &self.lake().inner.store.inner;
        let files = self.dataset().fragments().iter().flat_map(|fragment| &fragment.files);
        let files: Vec<_> = files.filter_map(|file| Some((self.data_file(file)?, file))).collect();
        let folders: HashSet<_> = files.iter().filter_map(|(path, _)| path.parent()).collect();
        let mut sizes: HashMap<Path, u64> = HashMap::new();
        for folder in folders {
            let listed = store.list(Some(&folder)).map_ok(|meta| (meta.location, meta.size)).try_collect::<Vec<_>>();
            sizes.extend(listed.await.ok()?);
        }
        let root = self.lake().inner.base.as_ref();
        files.into_iter().find_map(|(path, file)| {
            let expected = file.file_size_bytes.get().map(|size| size.get());
            let in_lake = path.as_ref().strip_prefix(root).unwrap_or(path.as_ref()).trim_start_matches('/');
            let place = || format!("data file {in_lake}");
            match (sizes.get(&path), expected) {
                (None, _) => Some(format!("{} is missing", place())),
                (Some(found), Some(expected)) if *found != expected => {
                    Some(format!("{}: the manifest says {expected} bytes, the file has {found}", place()))
                }
                _ => None,
            }
        })
    }
}

/// The error of opening a table by a valid name. The manifest is at fault, unless a newer version of Lance wrote it.
pub(crate) fn opening_error(attempted: String, source: lance_core::Error) -> Error {
    use ErrorKind::{Internal, InvalidRequest};
    let is_newer = matches!(source, lance_core::Error::NotSupported { .. });
    match Error::storage(attempted, source) {
        Error::Storage { attempted, kind: InvalidRequest | Internal, source } if !is_newer => {
            Error::DataCorrupt { attempted, reason: first_line(&source) }
        }
        error => error,
    }
}

/// The error of a read with valid arguments, derived from its cause alone, without requests.
pub(crate) fn decode_error(attempted: String, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    use ErrorKind::{Internal, InvalidRequest, NotFound};
    match Error::storage(attempted, source) {
        Error::Storage { attempted, kind: InvalidRequest | Internal | NotFound, source } => {
            Error::DataCorrupt { attempted, reason: first_line(&source) }
        }
        error => error,
    }
}
