//! Text files, which may be compressed.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flate2::bufread::MultiGzDecoder;

use crate::{Error, FileBytes, Folder, Result, Sequential};

/// The number of decompressed bytes that are held.
const DECOMPRESSED_BYTES: usize = 256 << 10;

/// The largest window of zstd that is decoded, as a power of two: what `zstd --long` writes without further options.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// The number of bytes in which a zero byte tells that a file is no text.
const SNIFFED_BYTES: usize = 1 << 10;

/// A text file that is read from its beginning to its end: as it is, or decompressed if its name ends with `.gz` or `.zst`.
pub(crate) struct TextFile {
    name: String,
    text: TextBytes,
    watched: Arc<FailingBytes>,
}

enum TextBytes {
    Plain(Sequential),
    Gzip(BufReader<MultiGzDecoder<Sequential>>),
    Zstd(BufReader<zstd::stream::read::Decoder<'static, Sequential>>),
}

impl TextFile {
    /// Opens a file of a folder. A byte order mark of UTF-8 at its beginning is left out.
    ///
    /// # Errors
    /// `Read` for files that cannot be read, `Malformed` for files that are no text.
    pub fn open(folder: &dyn Folder, name: &str) -> Result<Self> {
        let file = folder.open(name).map_err(|source| Error::read(name, source))?;
        let watched = Arc::new(FailingBytes { file, failed: AtomicBool::new(false) });
        let source = Sequential::new(watched.clone());
        let text = match compression(name) {
            Some(TextCompression::Gzip) => {
                TextBytes::Gzip(BufReader::with_capacity(DECOMPRESSED_BYTES, MultiGzDecoder::new(source)))
            }
            Some(TextCompression::Zstd) => {
                let decoder = zstd::stream::read::Decoder::with_buffer(source).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                    Ok(decoder)
                });
                let decoder = decoder.map_err(|source| Error::read(name, source))?;
                TextBytes::Zstd(BufReader::with_capacity(DECOMPRESSED_BYTES, decoder))
            }
            None => TextBytes::Plain(source),
        };
        let mut opened = Self { name: name.to_string(), text, watched };
        opened.sniff()?;
        Ok(opened)
    }

    /// The name of the file in its folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of bytes of the file, as it is stored, before the next byte of the text, up to the size of buffers.
    pub fn position(&self) -> u64 {
        match &self.text {
            TextBytes::Plain(source) => source.position(),
            TextBytes::Gzip(text) => text.get_ref().get_ref().position(),
            TextBytes::Zstd(text) => text.get_ref().get_ref().position(),
        }
    }

    /// Makes the error for bytes that could not be read or decompressed.
    pub fn error(&self, source: io::Error) -> Error {
        let (format, is_damage) = match &self.text {
            TextBytes::Plain(_) => ("", false),
            TextBytes::Gzip(_) => ("gzip", !self.watched.failed.load(Ordering::Relaxed)),
            TextBytes::Zstd(_) => ("zstd", !self.watched.failed.load(Ordering::Relaxed)),
        };
        match is_damage {
            true => {
                let near = self.position();
                Error::malformed(&self.name, format!("near byte {near}, {format} data is damaged or cut off: {source}"))
            }
            false => Error::read(&self.name, source),
        }
    }

    fn sniff(&mut self) -> Result<()> {
        let head = match self.fill_buf() {
            Ok(head) => head,
            Err(source) => return Err(self.error(source)),
        };
        let has_mark = head.starts_with(b"\xef\xbb\xbf");
        let looks_binary = head.starts_with(b"PAR1") || head.iter().take(SNIFFED_BYTES).any(|byte| *byte == 0);
        if looks_binary {
            let shown = head.get(..head.len().min(8)).unwrap_or_default().escape_ascii().to_string();
            return Err(Error::malformed(&self.name, format!("the file is no text; it begins with \"{shown}\"")));
        }
        if has_mark {
            self.consume(3);
        }
        Ok(())
    }
}

impl Read for TextFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.text {
            TextBytes::Plain(source) => source.read(into),
            TextBytes::Gzip(text) => text.read(into),
            TextBytes::Zstd(text) => text.read(into),
        }
    }
}

impl BufRead for TextFile {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match &mut self.text {
            TextBytes::Plain(source) => source.fill_buf(),
            TextBytes::Gzip(text) => text.fill_buf(),
            TextBytes::Zstd(text) => text.fill_buf(),
        }
    }

    fn consume(&mut self, amount: usize) {
        match &mut self.text {
            TextBytes::Plain(source) => source.consume(amount),
            TextBytes::Gzip(text) => text.consume(amount),
            TextBytes::Zstd(text) => text.consume(amount),
        }
    }
}

impl fmt::Debug for TextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextFile").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A file that remembers whether a read failed, so that such a failure is told from damaged compressed data.
#[derive(Debug)]
struct FailingBytes {
    file: Arc<dyn FileBytes>,
    failed: AtomicBool,
}

impl FileBytes for FailingBytes {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_at(offset, into);
        if read.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        read
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        self.file.will_read(ranges);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextCompression {
    Gzip,
    Zstd,
}

fn compression(name: &str) -> Option<TextCompression> {
    match () {
        () if ends_with(name, ".gz") => Some(TextCompression::Gzip),
        () if ends_with(name, ".zst") => Some(TextCompression::Zstd),
        () => None,
    }
}

/// Returns whether a name ends with one of the endings, which have their dot, in any case of letters. `.gz` and `.zst`
/// after the ending are left out. Hidden files, whose name or folder begins with `.` or `_`, have no ending.
pub(crate) fn has_ending(name: &str, endings: &[&str]) -> bool {
    let plain = match compression(name) {
        Some(TextCompression::Gzip) => name.get(..name.len().saturating_sub(3)),
        Some(TextCompression::Zstd) => name.get(..name.len().saturating_sub(4)),
        None => Some(name),
    };
    let is_hidden = name.split('/').any(|part| part.starts_with(['.', '_']));
    !is_hidden && plain.is_some_and(|plain| endings.iter().any(|ending| ends_with(plain, ending)))
}

fn ends_with(name: &str, ending: &str) -> bool {
    let start = name.len().checked_sub(ending.len());
    start.and_then(|start| name.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(ending))
}

/// Returns the names of a folder that have one of the endings, in order; `None` if there are none.
pub(crate) fn named(folder: &dyn Folder, endings: &[&str]) -> Option<Vec<String>> {
    let files = folder.files().iter().filter(|file| has_ending(&file.name, endings));
    let names: Vec<String> = files.map(|file| file.name.clone()).collect();
    (!names.is_empty()).then_some(names)
}
