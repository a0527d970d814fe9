//! Folders in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::{FileBytes, Folder, FolderFile};

/// Files that are in memory, such as those of tests.
#[derive(Debug, Default)]
pub struct MemoryFolder {
    listed: Vec<FolderFile>,
    bytes: BTreeMap<String, Bytes>,
}

impl MemoryFolder {
    /// Makes a folder of names and contents.
    pub fn new<N: Into<String>>(files: impl IntoIterator<Item = (N, Vec<u8>)>) -> Arc<Self> {
        let bytes: BTreeMap<String, Bytes> =
            files.into_iter().map(|(name, bytes)| (name.into(), Bytes::from(bytes))).collect();
        let listed =
            bytes.iter().map(|(name, bytes)| FolderFile { name: name.clone(), bytes: bytes.len() as u64 }).collect();
        Arc::new(Self { listed, bytes })
    }

    /// Replaces the bytes of a file after the folder was listed.
    #[must_use]
    pub fn with_changed(self: Arc<Self>, name: &str, bytes: &[u8]) -> Arc<Self> {
        let mut changed = Self { listed: self.listed.clone(), bytes: self.bytes.clone() };
        changed.bytes.insert(name.into(), Bytes::copy_from_slice(bytes));
        Arc::new(changed)
    }
}

impl Folder for MemoryFolder {
    fn files(&self) -> &[FolderFile] {
        &self.listed
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        let bytes = self.bytes.get(name).filter(|_| self.file(name).is_some()).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(bytes.clone()))
    }
}
