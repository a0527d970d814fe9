//! Reads of local files that never wait for a disk.

use std::fs::File;
use std::io::IoSliceMut;

use rustix::io::Errno;

/// Reads what the system has in memory of a file, from `at` on, into slices; returns how many bytes.
///
/// # Errors
/// The system's: `AGAIN` where it would have to wait. Systems and file systems that cannot tell what is in memory refuse in several ways,
/// and Linux 5.9 and 5.10 may say that the file ends.
pub fn preadv_cached(file: &File, slices: &mut [IoSliceMut<'_>], at: u64) -> Result<usize, Errno> {
    #[cfg(target_os = "linux")]
    return rustix::io::preadv2(file, slices, at, rustix::io::ReadWriteFlags::NOWAIT);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, slices, at);
        Err(Errno::OPNOTSUPP)
    }
}
