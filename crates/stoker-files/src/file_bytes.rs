//! The bytes of files.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;

/// The bytes of a file, which can be read at any offset.
pub trait FileBytes: fmt::Debug + Send + Sync {
    /// The number of bytes when the file was opened.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has fewer bytes; errors of the system or the store.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Says that ranges will be read, each from its beginning to its end, perhaps in turns. Files that are far away fetch
    /// them ahead. The default does nothing.
    fn will_read(&self, _ranges: &[Range<u64>]) {}
}

/// A file of this machine.
#[derive(Debug)]
pub struct LocalFile {
    file: File,
    size: u64,
}

impl LocalFile {
    /// Opens a file.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { file, size })
    }
}

impl FileBytes for LocalFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

impl FileBytes for Bytes {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(into.len()).and_then(|end| self.get(start..end));
        into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
