//! Reads tokenizer files.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::{Error, Result};

/// The most bytes of a tokenizer file. Files of large multilingual vocabularies have some 30 MB.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads a tokenizer file, or the file `tokenizer.json` of a folder. Returns its text.
///
/// # Errors
/// [`Error::Read`]; [`Error::TooLarge`], before the file is read; [`Error::NotATokenizer`] for a file that is no text.
pub fn read_file(path: &Path) -> Result<String> {
    let path = match path.is_dir() {
        true => path.join("tokenizer.json"),
        false => path.to_path_buf(),
    };
    let name = path.display().to_string();
    let failed = |source: io::Error| Error::Read { file: name.clone(), source };
    let file = File::open(&path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    check_size(&name, bytes)?;
    let mut text = Vec::new();
    // The length of a pipe is not known before it is read.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(failed)?;
    check_size(&name, text.len() as u64)?;
    String::from_utf8(text).map_err(|error| Error::NotATokenizer {
        file: name.clone(),
        reason: format!("it is no text: {}", error.utf8_error()),
    })
}

/// Checks the size of a tokenizer.
///
/// # Errors
/// [`Error::TooLarge`].
pub(crate) fn check_size(name: &str, bytes: u64) -> Result<()> {
    match bytes <= FILE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::TooLarge { file: name.to_string(), bytes, max: FILE_BYTES_MAX }),
    }
}
