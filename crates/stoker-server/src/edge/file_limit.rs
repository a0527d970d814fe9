//! The process's limit of open files.

use std::io;

/// The limit that the server asks for, even if the system would allow more.
const FILES_MAX: u64 = 1 << 16;

/// Raises the limit of open files as far as the system allows it, to at most 65,536, and returns the resulting limit.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = rlimit::Resource::NOFILE.get()?;
    if soft >= FILES_MAX.min(hard) {
        return Ok(soft);
    }
    rlimit::increase_nofile_limit(FILES_MAX)
}
