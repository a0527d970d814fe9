//! Local data files with checksums.
//!
//! Lance reads local files past the store that everything else passes, unless a store says that it has another root than the system.
//! That of [`CheckedFiles`] does, so that its reads pass [`CheckedWrapper`](super::CheckedWrapper) too.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use lance_io::object_store::providers::local::FileStoreProvider;
use lance_io::object_store::{ObjectStore, ObjectStoreParams, ObjectStoreProvider, ObjectStoreRegistry};
use object_store::path::Path;
use object_store::{Attributes, Error, Extensions, ObjectMeta, Result};
use url::Url;

use super::store::Fetched;

/// The scheme of local files.
const FILE: &str = "file";

/// The root that the store of local files tells: any but the scheme.
const PREFIX: &str = "file$checked";

/// What errors of local files name as their store.
const LOCAL: &str = "LocalFileSystem";

/// Makes stores of local files, all of whose reads pass their wrapper.
#[derive(Debug, Default)]
struct CheckedFiles(FileStoreProvider);

/// A registry of stores in which those of local files are read through their wrapper.
pub(crate) fn checked_registry() -> Arc<ObjectStoreRegistry> {
    let registry = ObjectStoreRegistry::default();
    registry.insert(FILE, Arc::new(CheckedFiles::default()));
    Arc::new(registry)
}

#[async_trait::async_trait]
impl ObjectStoreProvider for CheckedFiles {
    async fn new_store(&self, base_path: Url, params: &ObjectStoreParams) -> lance_core::Result<ObjectStore> {
        let mut store = self.0.new_store(base_path, params).await?;
        store.store_prefix = PREFIX.to_string();
        Ok(store)
    }

    fn extract_path(&self, url: &Url) -> lance_core::Result<Path> {
        self.0.extract_path(url)
    }

    fn calculate_object_store_prefix(
        &self,
        url: &Url,
        options: Option<&HashMap<String, String>>,
    ) -> lance_core::Result<String> {
        self.0.calculate_object_store_prefix(url, options)
    }
}

/// Reads bytes of a local file, all of it without a range; past the system's memory of files where that is asked for.
pub(super) async fn read(path: &Path, range: Option<Range<u64>>, from: ReadFrom) -> Result<Fetched> {
    let location = path.clone();
    let read = tokio::task::spawn_blocking(move || read_blocking(&location, range, from)).await;
    read.map_err(|source| Error::JoinError { source })?.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: path.to_string(), source: Box::new(source) },
        _ => Error::Generic { store: LOCAL, source: Box::new(source) },
    })
}

/// Where bytes are read from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFrom {
    /// Caches, if they have them.
    Anywhere,
    /// What stores them.
    Storage,
}

fn read_blocking(path: &Path, range: Option<Range<u64>>, from: ReadFrom) -> io::Result<Fetched> {
    let file = File::open(PathBuf::from(format!("/{}", path.as_ref())))?;
    let metadata = file.metadata()?;
    let size = metadata.len();
    let range = range.map_or(0..size, |range| range.start.min(size)..range.end.min(size));
    if from == ReadFrom::Storage {
        forget(&file);
    }
    let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    let last_modified = metadata.modified()?.into();
    let meta = ObjectMeta { location: path.clone(), last_modified, size, e_tag: None, version: None };
    let (attributes, extensions) = (Attributes::default(), Extensions::default());
    Ok(Fetched { start: range.start, bytes: Bytes::from(bytes), meta, attributes, extensions })
}

/// Lets the system forget a file. Only Linux can, and a file system may refuse: then the next read gives the same bytes once more.
fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
