//! Folders of datasets.

use std::any::Any;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{FileBytes, LocalFile, real_path_inside};

/// A file of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderFile {
    /// The path below the folder, with `/`.
    pub name: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// Files that are being fetched, until this value is dropped.
pub type FilesAhead = Box<dyn Any + Send>;

/// The files below a folder of this machine or below a prefix of a bucket. A single file is a folder with one file.
pub trait Folder: fmt::Debug + Send + Sync {
    /// The files at any depth, sorted by name.
    fn files(&self) -> &[FolderFile];

    /// Opens a file by its name.
    ///
    /// # Errors
    /// `NotFound` for names that the folder does not have, which includes names with `..`; errors of the system or the
    /// store.
    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>>;

    /// Opens a file that a row names. The files of a folder can be links: this one may not lead out of the folder.
    ///
    /// # Errors
    /// As [`open`](Self::open); `PermissionDenied` for links out of the folder.
    fn open_inside(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        self.open(name)
    }

    /// Begins to fetch files that will be opened soon, in this order, where each open waits for a store. Returns a value
    /// that ends this when it is dropped; `None` where files are near, as the default says.
    fn fetch_ahead(&self, _names: &[&str]) -> Option<FilesAhead> {
        None
    }

    /// Returns the file with a name.
    fn file(&self, name: &str) -> Option<&FolderFile> {
        let files = self.files();
        let index = files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()?;
        files.get(index)
    }
}

/// A folder of this machine, whose files were listed.
#[derive(Debug)]
pub struct LocalFolder {
    root: PathBuf,
    files: Vec<FolderFile>,
}

impl LocalFolder {
    /// Makes a folder of files that were listed below `root`.
    pub fn new(root: &Path, mut files: Vec<FolderFile>) -> Self {
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Self { root: root.to_path_buf(), files }
    }
}

impl Folder for LocalFolder {
    fn files(&self) -> &[FolderFile] {
        &self.files
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        if self.file(name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Arc::new(LocalFile::open(&self.root.join(name))?))
    }

    fn open_inside(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        if self.file(name).is_none() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let path = real_path_inside(&self.root, &self.root.join(name))?;
        Ok(Arc::new(LocalFile::open(&path)?))
    }
}
