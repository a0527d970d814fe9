//! Local files that are read without the page cache.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// The size of the blocks that disks and file systems read: smaller reads, where they are allowed, cost as much. In
/// bytes.
#[cfg(target_os = "linux")]
const ALIGNMENT_MIN: usize = 4 << 10;

/// The maximum alignment in bytes: a file on a file system that requires more is not read with `O_DIRECT`.
#[cfg(target_os = "linux")]
const ALIGNMENT_MAX: usize = 64 << 10;

/// A local file whose reads neither use nor fill the page cache (`O_DIRECT`).
#[derive(Debug)]
pub struct UncachedFile {
    file: File,
    alignment: usize,
    place: String,
    is_refused: AtomicBool,
}

impl UncachedFile {
    /// Opens a file; `place` names it in the log. `None` where the operating system or the file system does not support
    /// `O_DIRECT`, or if the file cannot be opened: the caller then reads it through the page cache. The first failure
    /// of the process is logged.
    pub fn open(path: &Path, place: &str) -> Option<Self> {
        match open(path) {
            Ok((file, alignment)) => {
                Some(Self { file, alignment, place: place.to_string(), is_refused: AtomicBool::new(false) })
            }
            Err(error) => {
                warn(place, &error);
                None
            }
        }
    }

    /// The open file. A read whose offset, length or memory address is not aligned fails with `EINVAL`.
    #[inline]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The alignment in bytes: the offset, length and memory address of a read must be multiples of it. It is a power
    /// of two, from 4 KiB to 64 KiB.
    #[inline]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Records that the file system opened the file but refused to read it; from now on it is read through the page
    /// cache.
    pub fn refuse(&self, error: &io::Error) {
        self.is_refused.store(true, Ordering::Relaxed);
        warn(&self.place, error);
    }

    /// Whether the file system refused a read of the file.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }
}

#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<(File, usize)> {
    use std::os::unix::fs::OpenOptionsExt;

    use rustix::fs::OFlags;

    let file = File::options().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path)?;
    let alignment = alignment(&file)?;
    Ok((file, alignment))
}

#[cfg(not(target_os = "linux"))]
fn open(_path: &Path) -> io::Result<(File, usize)> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns the alignment that the file system reports. Linux reports it since version 6.1, and not for all file
/// systems; otherwise it is assumed to be 4 KiB.
#[cfg(target_os = "linux")]
fn alignment(file: &File) -> io::Result<usize> {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Some(found) = found.ok().filter(|found| found.stx_mask & StatxFlags::DIOALIGN.bits() != 0) else {
        return Ok(ALIGNMENT_MIN);
    };
    let (memory, offset) = (found.stx_dio_mem_align as usize, found.stx_dio_offset_align as usize);
    let alignment = memory.max(offset).max(ALIGNMENT_MIN);
    // Zeros mean that the file does not support `O_DIRECT`; an encrypted file, for example.
    if memory == 0 || offset == 0 || !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(alignment)
}

/// Logs, once per process, that files are read through the page cache although `direct_io` is set.
fn warn(place: &str, error: &io::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| tracing::warn!(place, %error, "cannot use direct_io: files are read as usual"));
}
