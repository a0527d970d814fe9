//! Files that the store of local files left when its process ended while it wrote them.
//!
//! The store writes `name#1` and renames it to `name` when it is complete. Its listings leave such files out, so that nobody
//! who asks the store finds them.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Files that were removed, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagedFiles {
    /// Their number.
    pub num_files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Removes the files below a folder that no process completed, and that were last written at least `age` ago. A dry run
/// removes nothing. Links to folders are not followed.
///
/// # Errors
/// A folder that cannot be listed, and a file that cannot be removed; not what others remove meanwhile.
pub fn remove_staged(folder: &Path, age: Duration, dry_run: bool) -> io::Result<StagedFiles> {
    let mut found = StagedFiles::default();
    for entry in unless_gone(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let Some(metadata) = unless_gone(entry.metadata())? else { continue };
        if metadata.is_dir() {
            let below = remove_staged(&entry.path(), age, dry_run)?;
            found.num_files += below.num_files;
            found.bytes += below.bytes;
            continue;
        }
        // A time in the future is no time ago.
        let since = metadata.modified().ok().and_then(|modified| SystemTime::now().duration_since(modified).ok());
        if metadata.is_file() && is_staged(&entry) && since.is_some_and(|since| since >= age) {
            found.num_files += 1;
            found.bytes += metadata.len();
            if !dry_run {
                unless_gone(fs::remove_file(entry.path()))?;
            }
        }
    }
    Ok(found)
}

/// Whether the name ends with `#` and digits.
fn is_staged(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    let number = name.to_str().and_then(|name| name.rsplit_once('#')).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn unless_gone<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3_600);

    #[test]
    fn old_files_that_no_process_completed_are_removed() -> io::Result<()> {
        let root = tempfile::tempdir()?;
        let folder = root.path().join("_indices/a");
        fs::create_dir_all(&folder)?;
        let old = SystemTime::now() - 8 * DAY;
        for (name, modified) in [
            ("old.lance#1", old),
            ("old#old.lance#22", old),
            ("new.lance#1", SystemTime::now()),
            ("whole.lance", old),
            ("name#", old),
            ("name#x", old),
        ] {
            fs::write(folder.join(name), b"abc")?;
            File::options().write(true).open(folder.join(name))?.set_modified(modified)?;
        }
        let expected = StagedFiles { num_files: 2, bytes: 6 };
        assert_eq!(remove_staged(root.path(), 7 * DAY, true)?, expected);
        assert_eq!(remove_staged(root.path(), 7 * DAY, false)?, expected);
        assert_eq!(remove_staged(root.path(), 7 * DAY, false)?, StagedFiles::default());
        assert_eq!(fs::read_dir(&folder)?.count(), 4);
        assert_eq!(remove_staged(&root.path().join("nothing"), DAY, false)?, StagedFiles::default());
        Ok(())
    }
}
