//! Errors of failed reads that name the damaged file of a table, and panics in the code that reads files.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;

use futures::{FutureExt, TryStreamExt};
use object_store::path::Path;
use stoker_store::first_line;
use stoker_types::ErrorKind;

use crate::{Error, Table};

/// A panic inside Lance or Arrow. They panic on bytes that no writer would have written, so a panic counts as damaged
/// data.
///
/// The default panic hook still prints its line to standard error.
#[derive(Debug, thiserror::Error)]
#[error("the reader of these bytes panicked: {message}")]
pub(crate) struct Panicked {
    message: String,
}

impl Panicked {
    /// Makes the error for a panic with this payload.
    pub fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
        Self { message: text.unwrap_or("no message").to_string() }
    }
}

/// Runs a future that reads stored bytes through Lance. Converts a panic to an error of kind `DataCorrupt`.
///
/// # Errors
/// Those of `reading`; for a panic, an I/O error of Lance that wraps [`Panicked`].
pub(crate) async fn caught<T>(reading: impl Future<Output = lance_core::Result<T>>) -> lance_core::Result<T> {
    match AssertUnwindSafe(reading).catch_unwind().await {
        Ok(done) => done,
        Err(payload) => Err(lance_core::Error::io_source(Box::new(Panicked::new(payload.as_ref())))),
    }
}

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

#[cfg(test)]
mod tests {
    use stoker_types::ErrorKind;

    use super::caught;
    use crate::Error;

    #[tokio::test]
    async fn panics_are_damage_and_say_what_was_read() {
        for panics in [true, false] {
            let reading = async {
                assert!(!panics, "index {} is out of bounds", 7);
                Ok(3)
            };
            match caught(reading).await {
                Ok(value) => assert_eq!((value, panics), (3, false)),
                Err(source) => {
                    let error = Error::storage("reading a file", source);
                    assert_eq!(error.kind(), ErrorKind::DataCorrupt, "{error}");
                    assert!(error.to_string().contains("panicked: index 7 is out of bounds"), "{error}");
                }
            }
        }
    }
}
