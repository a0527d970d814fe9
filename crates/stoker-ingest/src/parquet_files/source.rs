//! Finds Parquet files and reads their footers.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::RowGroupMetaData;
use stoker_types::DigestBuilder;
use walkdir::{DirEntry, WalkDir};

use super::footer::read_footer;
use crate::stamp::Stamp;
use crate::{Error, OnError, Result, Skipped};

/// Endings of file names in folders that are Parquet files.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// What is kept of a file's footer.
pub(super) struct ParquetFile {
    pub path: PathBuf,
    /// What the file was when it was listed.
    pub stamp: Stamp,
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
}

impl ParquetFile {
    fn new(path: PathBuf, stamp: Stamp, footer: &ArrowReaderMetadata, like: Option<&SchemaRef>) -> Self {
        let row_groups = footer.metadata().row_groups().iter().map(|group| RowGroup {
            rows: num_rows(group),
            bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
        });
        let schema = like.filter(|like| *like == footer.schema()).unwrap_or(footer.schema()).clone();
        Self { path, stamp, schema, row_groups: row_groups.collect() }
    }
}

/// Rows of a row group; none when a damaged footer says less.
pub(super) fn num_rows(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

/// All files of an ingest.
pub(super) struct Sources {
    /// Those whose footers are readable.
    pub files: Vec<ParquetFile>,
    /// The others.
    pub skipped: Vec<Skipped>,
    /// The absolute path of each, readable or not, and what it was.
    identities: Vec<(PathBuf, Stamp)>,
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
        let stamp = Stamp::of(&status);
        self.identities.push((absolute, stamp));
        let footer = File::open(&path).map_err(|error| error.to_string()).and_then(|file| read_footer(&file));
        match footer {
            Ok(footer) => {
                let like = self.files.last().map(|file| &file.schema);
                self.files.push(ParquetFile::new(path, stamp, &footer, like));
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
        for (path, stamp) in &self.identities {
            digest.update(path.as_os_str().as_encoded_bytes());
            stamp.add_to(digest);
        }
    }
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
