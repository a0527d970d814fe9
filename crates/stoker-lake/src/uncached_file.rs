//! Local files that are read past the system's memory of files.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// What disks and file systems read in one piece: smaller reads, where they are allowed, cost as much.
#[cfg(target_os = "linux")]
const ALIGNMENT_MIN: usize = 4 << 10;

/// A file system that asks for more is not read so.
#[cfg(target_os = "linux")]
const ALIGNMENT_MAX: usize = 64 << 10;

/// A local file whose reads neither use nor fill the system's memory of files (`O_DIRECT`).
#[derive(Debug)]
pub struct UncachedFile {
    file: File,
    alignment: usize,
    place: String,
    is_refused: AtomicBool,
}

impl UncachedFile {
    /// Opens a file; `place` names it in the log. `None` where the system or the file system does not read so, or the file cannot
    /// be opened once more: then it is read as usual. The first time is logged.
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

    /// The open file. A read whose offset, length or memory is not aligned fails with `EINVAL`.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Offset, length and memory of a read must be multiples of so many bytes: a power of two, from 4 KiB to 64 KiB.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// Notes that the file system opened the file and does not read it: it is not read so any more.
    pub fn refuse(&self, error: &io::Error) {
        self.is_refused.store(true, Ordering::Relaxed);
        warn(&self.place, error);
    }

    pub(crate) fn is_refused(&self) -> bool {
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

/// The alignment that the file system reports; Linux tells it since 6.1, and not of all file systems.
#[cfg(target_os = "linux")]
fn alignment(file: &File) -> io::Result<usize> {
    use rustix::fs::{AtFlags, StatxFlags, statx};

    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Some(found) = found.ok().filter(|found| found.stx_mask & StatxFlags::DIOALIGN.bits() != 0) else {
        return Ok(ALIGNMENT_MIN);
    };
    let (memory, offset) = (found.stx_dio_mem_align as usize, found.stx_dio_offset_align as usize);
    let alignment = memory.max(offset).max(ALIGNMENT_MIN);
    // Zeros stand for a file that is not read so, such as one that is encrypted.
    if memory == 0 || offset == 0 || !alignment.is_power_of_two() || alignment > ALIGNMENT_MAX {
        return Err(io::ErrorKind::Unsupported.into());
    }
    Ok(alignment)
}

/// Says once that files are read as without the option.
fn warn(place: &str, error: &io::Error) {
    static WARNED: Once = Once::new();
    WARNED.call_once(|| tracing::warn!(place, %error, "direct_io: files cannot be read so, and are read as usual"));
}
