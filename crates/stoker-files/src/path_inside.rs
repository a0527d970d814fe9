//! Paths of files that must lie in a folder.

use std::io;
use std::path::{Path, PathBuf};

/// Returns a path that a file names, below the folder that it may not leave. Empty parts and `.` are left out, so that the
/// result can be empty.
///
/// # Errors
/// Why the path could leave the folder, as the rest of a sentence that begins with the path: it is absolute, has a scheme or
/// a drive, or has `..`.
pub fn path_inside(path: &str) -> Result<String, &'static str> {
    let is_absolute = path.starts_with(['/', '\\']) || path.contains("://") || path.get(1..2) == Some(":");
    if is_absolute {
        return Err("is an absolute path; paths should be relative to the folder");
    }
    if path.split(['/', '\\']).any(|part| part == "..") {
        return Err("has .., and could leave the folder");
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    Ok(parts.join("/"))
}

/// Returns the path of a file without links, which may not lead out of the folder `root`. `root` can be the file itself. The
/// files of a snapshot in the cache of Hugging Face's hub may lead to the cache's own folder of files.
///
/// # Errors
/// `PermissionDenied` for a link out of the folder; errors of the system.
pub fn real_path_inside(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let root = root.canonicalize()?;
    let path = path.canonicalize()?;
    if path.starts_with(&root) || blobs(&root).is_some_and(|blobs| path.starts_with(blobs)) {
        return Ok(path);
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the file is a link out of the folder"))
}

/// Returns where the cache of Hugging Face's hub keeps the files of a snapshot, which are links:
/// `snapshots/<revision>/<file>` leads to `blobs/<digest>`. The folder can be one below a snapshot.
fn blobs(root: &Path) -> Option<PathBuf> {
    let is_snapshots = |folder: &&Path| folder.file_name().is_some_and(|name| name == "snapshots");
    let snapshots = root.ancestors().skip(1).find(is_snapshots)?;
    Some(snapshots.parent()?.join("blobs"))
}
