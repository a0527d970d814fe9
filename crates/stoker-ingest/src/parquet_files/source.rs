//! Finds Parquet files and reads their footers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use stoker_types::DigestBuilder;
use walkdir::{DirEntry, WalkDir};

use crate::job::catch_panic;
use crate::{Error, OnError, Result, Skipped};

/// Endings of file names in folders that are Parquet files.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// What is kept of a file's footer.
pub(super) struct ParquetFile {
    pub path: PathBuf,
    pub bytes: u64,
    /// Shared by files with equal schemas.
    pub schema: SchemaRef,
    pub row_groups: Vec<RowGroup>,
}

/// The size of a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowGroup {
    pub rows: u64,
    /// Bytes in the file.
    pub bytes: u64,
    /// Bytes after decompression.
    pub plain_bytes: u64,
}

impl ParquetFile {
    fn new(path: PathBuf, bytes: u64, footer: &ArrowReaderMetadata, like: Option<&SchemaRef>) -> Self {
        let size = |size: i64| u64::try_from(size).unwrap_or(0);
        let row_groups = footer.metadata().row_groups().iter().map(|group| RowGroup {
            rows: size(group.num_rows()),
            bytes: size(group.compressed_size()),
            plain_bytes: size(group.total_byte_size()),
        });
        let schema = like.filter(|like| *like == footer.schema()).unwrap_or(footer.schema()).clone();
        Self { path, bytes, schema, row_groups: row_groups.collect() }
    }
}

/// All files of an ingest.
pub(super) struct Sources {
    /// Those whose footers are readable.
    pub files: Vec<ParquetFile>,
    /// The others.
    pub skipped: Vec<Skipped>,
    /// Path, size and time of modification of each, readable or not.
    identities: Vec<(PathBuf, u64, u128)>,
}

impl Sources {
    /// Reads the footers of files, and of the files in folders.
    pub fn open(paths: &[PathBuf], on_error: OnError) -> Result<Self> {
        let mut sources = Self { files: Vec::new(), skipped: Vec::new(), identities: Vec::new() };
        for path in paths {
            for path in expand(path)? {
                sources.add(path, on_error)?;
            }
        }
        if sources.files.is_empty() {
            let path = paths.first().cloned().unwrap_or_default();
            let reason = match sources.skipped.first() {
                Some(skipped) => format!("no file is readable; {}: {}", skipped.path, skipped.reason),
                None => format!("found no files that end with .{}", EXTENSIONS.join(", .")),
            };
            return Err(Error::Empty { path, reason });
        }
        Ok(sources)
    }

    fn add(&mut self, path: PathBuf, on_error: OnError) -> Result<()> {
        let absolute = path.canonicalize().map_err(|source| Error::list(&path, source))?;
        let status = absolute.metadata().map_err(|source| Error::list(&path, source))?;
        let modified = status.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        self.identities.push((absolute, status.len(), modified.map_or(0, |age| age.as_nanos())));
        match footer(&path) {
            Ok(footer) => {
                let like = self.files.last().map(|file| &file.schema);
                self.files.push(ParquetFile::new(path, status.len(), &footer, like));
            }
            Err(reason) if on_error == OnError::Skip => {
                self.skipped.push(Skipped { path: path.display().to_string(), reason })
            }
            Err(reason) => return Err(Error::Unreadable { path, reason }),
        }
        Ok(())
    }

    /// Adds all that identifies these sources: names, sizes and times of modification.
    pub fn add_to(&self, digest: &mut DigestBuilder) {
        for (path, bytes, modified_nanos) in &self.identities {
            digest.update(path.as_os_str().as_encoded_bytes());
            digest.update(&bytes.to_le_bytes());
            digest.update(&modified_nanos.to_le_bytes());
        }
    }
}

/// Reads the footer of a file.
pub(super) fn footer(path: &Path) -> Result<ArrowReaderMetadata, String> {
    let read = || {
        let file = File::open(path).map_err(|error| error.to_string())?;
        ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(|error| error.to_string())
    };
    catch_panic(read, |reason| reason)
}

/// The file itself, or the Parquet files in a folder. Names that begin with `.` or `_` are bookkeeping of other tools.
fn expand(path: &Path) -> Result<Vec<PathBuf>> {
    let status = path.metadata().map_err(|source| Error::list(path, source))?;
    if !status.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let visible = |entry: &DirEntry| {
        let name = entry.file_name().as_encoded_bytes();
        entry.depth() == 0 || !(name.starts_with(b".") || name.starts_with(b"_"))
    };
    let mut files = Vec::new();
    for entry in WalkDir::new(path).follow_links(true).into_iter().filter_entry(visible) {
        let entry = entry.map_err(|source| {
            let path = source.path().unwrap_or(path).to_path_buf();
            Error::List { path, source: source.into() }
        })?;
        let extension = entry.path().extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if entry.file_type().is_file() && EXTENSIONS.iter().any(|known| known.eq_ignore_ascii_case(extension)) {
            files.push(entry.into_path());
        }
    }
    files.sort();
    Ok(files)
}
