//! Opens a shared library together with the libraries beside it that it needs.
#![expect(unsafe_code, reason = "loads a C library")]

use std::error::Error;
use std::ffi::OsStr;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use libloading::Library;

/// The most libraries that are loaded before the one that is asked for.
const LOADED_MAX: usize = 64;

/// Opens a library, which stays loaded until the process ends.
///
/// Libraries in wheels of PyPI have names of their own and no search path. They need each other, and the system's loader
/// finds a needed library only if it is loaded already. So a library that the loader misses is loaded first if it lies in
/// the same folder.
///
/// # Errors
/// The text of the system's loader.
pub(crate) fn open(name: &OsStr) -> Result<ManuallyDrop<Library>, String> {
    let mut beside = others(Path::new(name));
    // The library that is asked for is at the bottom, and on it those that it misses.
    let mut wanted = vec![PathBuf::from(name)];
    for _ in 0..LOADED_MAX {
        let Some(next) = wanted.last() else { break };
        match open_one(next.as_os_str()) {
            Ok(library) if wanted.len() == 1 => return Ok(library),
            Ok(_) => drop(wanted.pop()),
            Err(reason) => match missing(&mut beside, &reason) {
                Some(file) => wanted.push(file),
                None => return Err(reason),
            },
        }
    }
    Err("needs too many other libraries".to_string())
}

fn open_one(name: &OsStr) -> Result<ManuallyDrop<Library>, String> {
    // SAFETY: loading runs the initialisers of the library. Whoever names the library trusts it and the files beside it,
    // like any other library of the process.
    match unsafe { Library::new(name) } {
        Ok(library) => Ok(ManuallyDrop::new(library)),
        Err(error) => Err(error.source().map_or_else(|| error.to_string(), ToString::to_string)),
    }
}

/// Returns the other files of the folder; none for a name without a folder.
fn others(file: &Path) -> Vec<PathBuf> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let Some(entries) = folder.and_then(|folder| folder.read_dir().ok()) else { return Vec::new() };
    entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path != file).collect()
}

/// Removes and returns the file that the loader's message names first.
fn missing(beside: &mut Vec<PathBuf>, message: &str) -> Option<PathBuf> {
    let at = |file: &PathBuf| message.find(file.file_name()?.to_str()?);
    let (index, _) =
        beside.iter().enumerate().filter_map(|(index, file)| Some((index, at(file)?))).min_by_key(|(_, at)| *at)?;
    Some(beside.swap_remove(index))
}
