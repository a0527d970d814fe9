//! Tokens and keys: texts that no error message, log line or debug output contains.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::Deserialize;

use crate::{Error, Result};

/// The minimum length of a secret in bytes: 16 random bytes cannot be guessed.
pub const SECRET_BYTES_MIN: usize = 16;

/// The bit of a file's mode that lets every user of the machine read the file.
const OTHERS_READ: u32 = 0o004;

/// A token or a key, with leading and trailing white space removed.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct Secret(String);

impl Secret {
    /// Reads a secret from a file: the whole text without leading and trailing white space. Logs a warning if every
    /// user of the machine can read the file. `what` names the secret in errors, such as `token`.
    ///
    /// # Errors
    /// A file that cannot be read or is not text.
    pub fn read(what: &str, path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::invalid(format!("cannot read the {what} in {}: {source}", path.display())))?;
        warn_of_readers(path);
        Ok(text.into())
    }

    /// Returns the text of the secret.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Checks that the secret is one line and long enough not to be guessed. `what` names the secret in errors.
    ///
    /// # Errors
    /// An empty secret, one of fewer than 16 bytes, one with control characters.
    pub fn check(&self, what: &str) -> Result<()> {
        let length = self.0.len();
        if self.0.is_empty() {
            return Err(Error::invalid(format!("{what} is empty")));
        }
        if length < SECRET_BYTES_MIN {
            return Err(Error::invalid(format!(
                "{what} has {length} bytes; use at least {SECRET_BYTES_MIN} random bytes, such as those of `openssl rand -hex 32`"
            )));
        }
        match self.0.contains(|letter: char| letter.is_control()) {
            true => Err(Error::invalid(format!("{what} has several lines or control characters; it must be one line"))),
            false => Ok(()),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.trim().to_string())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Logs a warning if every user of the machine can read a file with secrets.
pub fn warn_of_readers(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|found| found.mode() & OTHERS_READ != 0) {
        let path = path.display();
        tracing::warn!("{path} holds secrets and every user of this machine can read it: `chmod 600 {path}`");
    }
}
