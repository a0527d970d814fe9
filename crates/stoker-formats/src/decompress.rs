//! Reads files from their beginning to their end, also compressed ones.

use std::fmt;
use std::io::{self, BufRead, Read};
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

use crate::{Error, FileBytes, Sequential};

/// How the bytes of a file are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileCompression {
    /// Not at all.
    Plain,
    /// RFC 1952, with any number of members.
    Gzip,
    /// RFC 8878, with any number of frames.
    Zstd,
}

impl FileCompression {
    /// Returns the compression that the ending of a name tells.
    pub fn of(name: &str) -> Self {
        let ending = name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        match ending.as_str() {
            "gz" | "gzip" | "tgz" => Self::Gzip,
            "zst" | "zstd" => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// The decompressed bytes of a file. They are made as they are read: at most one window of the compression (128 MiB for
/// Zstandard) is in memory, whatever the file expands to.
pub(crate) struct Decompressed {
    name: String,
    file_bytes: u64,
    stored: StoredBytes,
}

enum StoredBytes {
    Plain(WatchedFile),
    Gzip(Box<MultiGzDecoder<WatchedFile>>),
    Zstd(Box<ZstdDecoder<'static, WatchedFile>>),
}

impl Decompressed {
    /// Begins at the start of a file. `name` is for errors.
    ///
    /// # Errors
    /// [`Error::Read`] if the system has no memory for the decoder.
    pub fn new(name: &str, file: Arc<dyn FileBytes>, compression: FileCompression) -> Result<Self, Error> {
        let file_bytes = file.size();
        let watched = WatchedFile { file: Sequential::new(file), failed: false };
        let stored = match compression {
            FileCompression::Plain => StoredBytes::Plain(watched),
            FileCompression::Gzip => StoredBytes::Gzip(Box::new(MultiGzDecoder::new(watched))),
            FileCompression::Zstd => {
                let decoder = ZstdDecoder::with_buffer(watched).map_err(|source| Error::read(name, source))?;
                StoredBytes::Zstd(Box::new(decoder))
            }
        };
        Ok(Self { name: name.to_string(), file_bytes, stored })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of bytes of the file, as it is stored, that were read.
    pub fn position(&self) -> u64 {
        self.watched().file.position()
    }

    /// Returns the number of bytes that follow; `None` if only decompressing tells it.
    pub fn left(&self) -> Option<u64> {
        matches!(self.stored, StoredBytes::Plain(_)).then(|| self.file_bytes.saturating_sub(self.position()))
    }

    /// Returns the error of a file for an error of reading it: the file could not be read, or its compression is damaged.
    pub fn error(&self, source: io::Error) -> Error {
        match self.watched().failed {
            true => Error::read(&self.name, source),
            false => Error::malformed(&self.name, source),
        }
    }

    fn watched(&self) -> &WatchedFile {
        match &self.stored {
            StoredBytes::Plain(file) => file,
            StoredBytes::Gzip(decoder) => decoder.get_ref(),
            StoredBytes::Zstd(decoder) => decoder.get_ref(),
        }
    }
}

impl Read for Decompressed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.stored {
            StoredBytes::Plain(file) => file.read(into),
            StoredBytes::Gzip(decoder) => decoder.read(into),
            StoredBytes::Zstd(decoder) => decoder.read(into),
        }
    }
}

impl fmt::Debug for Decompressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompressed").field("name", &self.name).field("position", &self.position()).finish()
    }
}

/// A file that remembers whether reading it failed, which tells errors of the store from those of a decoder.
struct WatchedFile {
    file: Sequential,
    failed: bool,
}

impl BufRead for WatchedFile {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        let found = self.file.fill_buf();
        self.failed |= found.is_err();
        found
    }

    fn consume(&mut self, amount: usize) {
        self.file.consume(amount);
    }
}

impl Read for WatchedFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let found = self.file.read(into);
        self.failed |= found.is_err();
        found
    }
}
