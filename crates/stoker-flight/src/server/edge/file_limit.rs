//! The files that the process may have open.

use std::io;

/// More files are not asked for.
const FILES_MAX: u64 = 1 << 16;

/// Raises the limit of open files as far as the system lets this process, and returns it.
///
/// # Errors
/// The system's.
pub(crate) fn raise_file_limit() -> io::Result<u64> {
    let (soft, hard) = rlimit::Resource::NOFILE.get()?;
    if soft >= FILES_MAX.min(hard) {
        return Ok(soft);
    }
    rlimit::increase_nofile_limit(FILES_MAX)
}
