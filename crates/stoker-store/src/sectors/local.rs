//! Reads of local data files, which are kept open.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Attributes, Error, Extensions, ObjectMeta, Result};
use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::fs::fstat;
use rustix::io::{Errno, pread};
use stoker_types::to_usize;

use super::read_memory::ReadMemory;
use super::store::Fetched;
use crate::cached_read::preadv_cached;

/// The store name in errors about local files.
const LOCAL: &str = "LocalFileSystem";

/// The maximum number of files that are kept open.
const OPEN_MAX: usize = 64;

/// Opening a file closes the files that were not read for this long. The disk space of a removed file is freed when the
/// file is closed: then, or when a reader requests the file again.
const OPEN_FOR: Duration = Duration::from_secs(60);

/// The maximum number of bytes that a task reads on its own thread: longer reads would delay the thread's other tasks.
pub(super) const READ_NOW_MAX: u64 = 1 << 20;

/// Local files that were read recently and are kept open, and the memory that is kept for reads of them.
#[derive(Debug, Default)]
pub(super) struct OpenFiles {
    files: Mutex<HashMap<Path, OpenFile>>,
    memory: Arc<ReadMemory>,
}

#[derive(Clone, Debug)]
struct OpenFile {
    file: Arc<File>,
    /// The file's size in bytes when it was opened.
    size: u64,
    last_modified: SystemTime,
    last_use: Instant,
}

impl OpenFile {
    fn fetched(&self, path: &Path, start: u64, bytes: Bytes) -> Fetched {
        let (last_modified, size) = (self.last_modified.into(), self.size);
        let meta = ObjectMeta { location: path.clone(), last_modified, size, e_tag: None, version: None };
        let (attributes, extensions) = (Attributes::default(), Extensions::default());
        Fetched { start, bytes, meta, attributes, extensions }
    }
}

impl OpenFiles {
    fn open(&self, path: &Path) -> io::Result<OpenFile> {
        if let Some(opened) = self.kept(path) {
            // A file that was removed, or replaced by another one, has no links any more.
            if fstat(&opened.file)?.st_nlink > 0 {
                return Ok(opened);
            }
            self.close(path);
        }
        let file = File::open(PathBuf::from(format!("/{}", path.as_ref())))?;
        let metadata = file.metadata()?;
        let (size, last_modified) = (metadata.len(), metadata.modified()?);
        let opened = OpenFile { file: Arc::new(file), size, last_modified, last_use: Instant::now() };
        let mut files = self.files.lock();
        files.retain(|_, file| file.last_use.elapsed() < OPEN_FOR);
        if files.len() >= OPEN_MAX
            && let Some(oldest) = files.iter().min_by_key(|(_, file)| file.last_use).map(|(path, _)| path.clone())
        {
            files.remove(&oldest);
        }
        files.insert(path.clone(), opened.clone());
        Ok(opened)
    }

    fn kept(&self, path: &Path) -> Option<OpenFile> {
        let mut files = self.files.lock();
        let opened = files.get_mut(path)?;
        opened.last_use = Instant::now();
        Some(opened.clone())
    }

    fn close(&self, path: &Path) {
        self.files.lock().remove(path);
    }
}

/// Reads a range of a local file, or the whole file, with `ReadFrom::Storage` not from the page cache. The calling task
/// reads the range itself if the file is open and the page cache has it: that takes less time than waking another
/// thread.
pub(super) async fn read(
    files: &Arc<OpenFiles>,
    path: &Path,
    range: Option<Range<u64>>,
    from: ReadFrom,
) -> Result<Fetched> {
    if from == ReadFrom::Anywhere
        && let Some(range) = &range
        && let Some(fetched) = read_now(files, path, range)
    {
        return Ok(fetched);
    }
    let (files, location) = (files.clone(), path.clone());
    let read = tokio::task::spawn_blocking(move || read_blocking(&files, &location, range, from)).await;
    read.map_err(|source| Error::JoinError { source })?.map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::NotFound { path: path.to_string(), source: Box::new(source) },
        _ => Error::Generic { store: LOCAL, source: Box::new(source) },
    })
}

/// Where bytes may be read from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFrom {
    /// The page cache or the store.
    Anywhere,
    /// Only the store, not the page cache.
    Storage,
}

/// Reads the bytes if that is possible without waiting; otherwise returns `None`.
fn read_now(files: &OpenFiles, path: &Path, range: &Range<u64>) -> Option<Fetched> {
    let opened = files.kept(path)?;
    let length = range.end.min(opened.size).checked_sub(range.start)?;
    if length > READ_NOW_MAX || fstat(&opened.file).ok()?.st_nlink == 0 {
        return None;
    }
    let mut memory = files.memory.take(to_usize(length));
    let bytes = memory.as_mut();
    let mut filled = 0;
    while filled < bytes.len() {
        let rest = &mut [IoSliceMut::new(&mut bytes[filled..])];
        match preadv_cached(&opened.file, rest, range.start + filled as u64) {
            Ok(0) => return None,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    Some(opened.fetched(path, range.start, memory.freeze()))
}

fn read_blocking(files: &OpenFiles, path: &Path, range: Option<Range<u64>>, from: ReadFrom) -> io::Result<Fetched> {
    if from == ReadFrom::Storage {
        files.close(path);
        forget(&files.open(path)?.file);
    }
    match read_at(&files.open(path)?, path, range.clone()) {
        // The file was truncated after it was opened.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            files.close(path);
            read_at(&files.open(path)?, path, range)
        }
        read => read,
    }
}

fn read_at(opened: &OpenFile, path: &Path, range: Option<Range<u64>>) -> io::Result<Fetched> {
    let size = opened.size;
    let range = range.map_or(0..size, |range| range.start.min(size)..range.end.min(size));
    let length = to_usize(range.end.saturating_sub(range.start));
    // The memory is not zeroed first, because that would cost as much as the checksums.
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let at = range.start + bytes.len() as u64;
        match pread(&opened.file, spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(length);
    Ok(opened.fetched(path, range.start, bytes.into()))
}

/// Drops a file from the page cache. Only Linux can do this, and a file system may refuse; then the next read returns
/// the same bytes again.
fn forget(file: &File) {
    #[cfg(target_os = "linux")]
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}
