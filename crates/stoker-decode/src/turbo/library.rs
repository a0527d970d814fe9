//! Finds and loads libjpeg-turbo.
#![expect(unsafe_code, reason = "loading a library runs its code; see the safety comments")]

use std::error::Error as _;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use libloading::Library;

use super::ffi::{Function, stoker_jpeg_path};
use super::probe;

/// The functions that the shim calls, in the order of `struct library` in `shim.h`.
const SYMBOLS: [&str; 10] = [
    "jpeg_std_error",
    "jpeg_CreateDecompress",
    "jpeg_destroy_decompress",
    "jpeg_read_header",
    "jpeg_has_multiple_scans",
    "jpeg_start_decompress",
    "jpeg_crop_scanline",
    "jpeg_skip_scanlines",
    "jpeg_read_scanlines",
    "jpeg_resync_to_restart",
];

/// The name of the library in the system's folders.
const SYSTEM_NAME: &str = if cfg!(target_os = "macos") { "libjpeg.62.dylib" } else { "libjpeg.so.62" };

/// The folders inside a folder of Python packages that hold the libraries of Pillow's wheel: on Linux, on macOS.
const PILLOW_FOLDERS: [&str; 2] = ["pillow.libs", "PIL/.dylibs"];

/// The text in the file of each build of the library before its version.
const VERSION_TEXT: &[u8] = b"libjpeg-turbo version ";

/// Why libjpeg-turbo cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// No candidate is a libjpeg-turbo of the right kind.
    #[error(
        "libjpeg-turbo (libjpeg.so.62) was not found: install Pillow (pip install pillow) or the system's package, \
         which is libjpeg62-turbo on Debian and libjpeg-turbo on Fedora; tried {tried}"
    )]
    NotFound {
        /// The candidates, each with the reason why it cannot be used.
        tried: String,
    },
    /// The given file is no libjpeg-turbo of the right kind.
    #[error("{path} cannot be used as libjpeg-turbo: {reason}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why it cannot be used.
        reason: String,
    },
}

/// A loaded libjpeg-turbo. It stays loaded as long as this value or a [`Decompressor`](crate::Decompressor) lives.
pub struct Turbo {
    pub(super) functions: [Function; SYMBOLS.len()],
    version: String,
    path: PathBuf,
    _library: Library,
}

impl Turbo {
    /// Loads the first usable library of: the files in `search`; the folders in `search` and, in each, the folder of
    /// Pillow's libraries; the system's folders. A folder of Python packages (`site-packages`) therefore finds Pillow's
    /// library. A library is usable if it has version 6.2 of the interface and decodes a test image to the expected
    /// pixels at each scale, so that all usable libraries give the same pixels for such images.
    ///
    /// Loading runs the initialization of the library, like any import: `search` must name trusted places.
    ///
    /// # Errors
    /// [`LoadError::Unusable`] if `search` names a file that cannot be used; [`LoadError::NotFound`].
    pub fn load(search: &[PathBuf]) -> Result<Arc<Self>, LoadError> {
        if let Some(path) = search.iter().find(|path| !path.is_dir()) {
            return try_load(path).map_err(|reason| LoadError::Unusable { path: path.clone(), reason });
        }
        let mut tried = Vec::new();
        let found = search.iter().flat_map(|folder| libraries_in(folder));
        for path in found.chain([PathBuf::from(SYSTEM_NAME)]) {
            match try_load(&path) {
                Ok(turbo) => return Ok(turbo),
                Err(reason) => tried.push(format!("{}: {reason}", path.display())),
            }
        }
        Err(LoadError::NotFound { tried: tried.join("; ") })
    }

    /// The name and version, for example `libjpeg-turbo 3.1.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The file that was loaded.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Debug for Turbo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turbo").field("version", &self.version).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the files in a folder, and in the folders of Pillow within it, whose names are those of libjpeg 6.2.
fn libraries_in(folder: &Path) -> Vec<PathBuf> {
    let folders = [folder.to_path_buf()].into_iter().chain(PILLOW_FOLDERS.map(|name| folder.join(name)));
    let entries = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| has_library_name(path)).collect();
    found.sort();
    found
}

fn has_library_name(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let is_version = |name: &str| name.contains(".so.62") || (name.contains(".62.") && name.ends_with(".dylib"));
    name.starts_with("libjpeg") && is_version(name)
}

fn try_load(path: &Path) -> Result<Arc<Turbo>, String> {
    // SAFETY: the caller of `Turbo::load` vouches for the places. Initializing libjpeg has no preconditions.
    let library = unsafe { Library::new(path) }.map_err(|error| reason(&error))?;
    let mut functions = Vec::new();
    for name in SYMBOLS {
        // SAFETY: the type has the size of all pointers to functions. Only the shim calls them, with their real types.
        let symbol = unsafe { library.get::<Function>(name) };
        functions.push(*symbol.map_err(|_| format!("it does not export {name}"))?);
    }
    let functions: [Function; SYMBOLS.len()] = functions.try_into().map_err(|_| "it lacks functions".to_string())?;
    let path = path_of(functions[0]).unwrap_or_else(|| path.to_path_buf());
    let file = fs::read(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    let version = version_in(&file).ok_or("its file does not name libjpeg-turbo's version")?;
    let turbo = Arc::new(Turbo { functions, version: format!("libjpeg-turbo {version}"), path, _library: library });
    probe::check(&turbo)?;
    Ok(turbo)
}

fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

fn path_of(function: Function) -> Option<PathBuf> {
    // SAFETY: the shim only looks the address up.
    let path = unsafe { stoker_jpeg_path(function) };
    if path.is_null() {
        return None;
    }
    // SAFETY: the path is a text that ends with zero and lives as long as the library, which `try_load` holds.
    let path = unsafe { CStr::from_ptr(path) };
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}

/// Returns the version in the file of a library, which has no function that returns it.
fn version_in(file: &[u8]) -> Option<&str> {
    let at = file.windows(VERSION_TEXT.len()).position(|window| window == VERSION_TEXT)? + VERSION_TEXT.len();
    let length = file.get(at..)?.iter().take_while(|byte| byte.is_ascii_graphic()).take(40).count();
    std::str::from_utf8(file.get(at..at + length)?).ok().filter(|version| !version.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{LoadError, Turbo, has_library_name, version_in};

    #[test]
    fn names_of_libraries_are_recognized() {
        for name in ["libjpeg.so.62", "libjpeg-6dc8d115.so.62.4.0", "libjpeg.62.4.0.dylib"] {
            assert!(has_library_name(Path::new(name)), "{name}");
        }
        for name in ["libjpeg.so.8", "libpng16.so.16", "libjpeg.8.dylib", "libturbojpeg.so.0"] {
            assert!(!has_library_name(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn the_version_is_read_from_the_file() {
        assert_eq!(version_in(b"..\0libjpeg-turbo version 3.1.2 (build 1)\0"), Some("3.1.2"));
        assert_eq!(version_in(b"libjpeg-turbo version "), None);
        assert_eq!(version_in(b"libjpeg 9f"), None);
    }

    #[test]
    fn a_file_that_is_no_library_is_named() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let error = Turbo::load(std::slice::from_ref(&file)).unwrap_err();
        assert!(matches!(&error, LoadError::Unusable { path, .. } if *path == file), "{error}");
    }
}
