//! Which of a table's files a failed read is about.

use std::collections::HashMap;
use std::error::Error as StdError;

use futures::TryStreamExt;
use stoker_types::ErrorKind;

use crate::error::first_line;
use crate::{Error, Table};

impl Table {
    /// The error of a read with valid arguments. Lance reports damaged pages as invalid input or as I/O errors about ranges:
    /// the data is at fault. Where a data file is missing or has the wrong size, the error says which one.
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

    /// The error of a read whose files were checked before, and failed.
    pub(crate) async fn check_error(&self, attempted: String, error: Error) -> Error {
        match error {
            Error::DataCorrupt { attempted: checking, reason } => {
                let file = self.damaged_file().await;
                Error::DataCorrupt { attempted, reason: file.unwrap_or_else(|| format!("{checking}: {reason}")) }
            }
            error => error,
        }
    }

    /// The first data file that is missing or has another size than the manifest says, and which of both.
    async fn damaged_file(&self) -> Option<String> {
        let folder = self.dataset().data_dir();
        let store = &self.lake().inner.store.inner;
        let sizes = store.list(Some(&folder)).map_ok(|meta| (meta.location, meta.size)).try_collect();
        let sizes: HashMap<_, u64> = sizes.await.ok()?;
        let files = self.dataset().fragments().iter().flat_map(|fragment| &fragment.files);
        files.filter(|file| file.base_id.is_none()).find_map(|file| {
            let expected = file.file_size_bytes.get().map(|size| size.get());
            let place = || format!("data file {}.lance/data/{}", self.name(), file.path);
            match (sizes.get(&folder.clone().join(file.path.as_str())), expected) {
                (None, _) => Some(format!("{} is missing", place())),
                (Some(found), Some(expected)) if *found != expected => {
                    Some(format!("{}: the manifest says {expected} bytes, the file has {found}", place()))
                }
                _ => None,
            }
        })
    }
}

/// The error of opening a table with a valid name: what its manifest says is at fault, unless a newer Lance wrote it.
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

/// The error of a read with valid arguments, by its cause alone.
pub(crate) fn decode_error(attempted: String, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
    use ErrorKind::{Internal, InvalidRequest, NotFound};
    match Error::storage(attempted, source) {
        Error::Storage { attempted, kind: InvalidRequest | Internal | NotFound, source } => {
            Error::DataCorrupt { attempted, reason: first_line(&source) }
        }
        error => error,
    }
}
