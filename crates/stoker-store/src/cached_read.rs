//! Reads of local files that never wait for a disk.

use std::fs::File;
use std::io::IoSliceMut;

use rustix::io::Errno;

/// Reads bytes of a file from offset `at` into slices, in order, as far as the bytes are in the page cache. Returns
/// the number of bytes read.
///
/// # Errors
/// The system's error: `AGAIN` when the read would have to wait for the disk. Systems and file systems without such
/// reads refuse with other errors, and Linux 5.9 and 5.10 may report the end of the file instead.
#[inline]
pub fn preadv_cached(file: &File, slices: &mut [IoSliceMut<'_>], at: u64) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    return rustix::io::preadv2(file, slices, at, rustix::io::ReadWriteFlags::NOWAIT);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, slices, at);
        Err(Errno::OPNOTSUPP)
    }
}
