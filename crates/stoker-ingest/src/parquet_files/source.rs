//! Lists Parquet files and reads their footers.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::RowGroupMetaData;
use stoker_types::DigestBuilder;
use walkdir::DirEntry;

use super::footer::read_footer;
use crate::stamp::Stamp;
use crate::walk::{Rules, Walk, walk};
use crate::{Error, OnError, Result, Skipped};

/// Endings of the names of Parquet files in folders.
pub(crate) const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// A Parquet file, with the parts of its footer that are kept.
#[derive(Clone)]
pub(super) struct ParquetFile {
    pub path: PathBuf,
    /// The path below the folder that the user named, or the file's name if the user named the file itself.
    pub name: String,
    pub absolute: PathBuf,
    /// The length and modification time when the file was listed.
    pub stamp: Stamp,
    /// The Arrow schema. Consecutive files with equal schemas share it.
    pub schema: SchemaRef,
    pub row_groups: Vec<RowGroup>,
}

/// The path, name and stamp of a file.
struct Identity {
    path: PathBuf,
    name: String,
    absolute: PathBuf,
    stamp: Stamp,
}

/// The size of a row group.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowGroup {
    pub rows: u64,
    /// The compressed size in bytes.
    pub bytes: u64,
}

impl ParquetFile {
    fn new(identity: Identity, footer: &ArrowReaderMetadata, like: Option<&SchemaRef>) -> Self {
        let row_groups = footer.metadata().row_groups().iter().map(|group| RowGroup {
            rows: num_rows(group),
            bytes: u64::try_from(group.compressed_size()).unwrap_or(0),
        });
        let schema = like.filter(|like| *like == footer.schema()).unwrap_or(footer.schema()).clone();
        let Identity { path, name, absolute, stamp } = identity;
        Self { path, name, absolute, stamp, schema, row_groups: row_groups.collect() }
    }
}

/// Returns the number of rows of a row group; 0 when a damaged footer has a negative number.
pub(super) fn num_rows(group: &RowGroupMetaData) -> u64 {
    u64::try_from(group.num_rows()).unwrap_or(0)
}

/// All files of an ingest.
pub(super) struct Sources {
    /// The files with readable footers.
    pub files: Vec<ParquetFile>,
    /// The other files.
    pub skipped: Vec<Skipped>,
    /// The number of files in the folders with each other ending.
    pub left_out: BTreeMap<String, u64>,
    /// The absolute path and stamp of each file, readable or not.
    identities: Vec<(PathBuf, Stamp)>,
}

impl Sources {
    /// Reads the footers of the given files, and of all files in the given folders.
    pub fn open(paths: &[PathBuf], on_error: OnError) -> Result<Self> {
        let (files, skipped, identities) = (Vec::new(), Vec::new(), Vec::new());
        let mut sources = Self { files, skipped, left_out: BTreeMap::new(), identities };
        for path in paths {
            for found in sources.expand(path, on_error)? {
                sources.add(found, on_error)?;
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

    /// Returns the file itself, or the Parquet files of a folder. Ignores names that begin with `.` or `_`, which
    /// belong to other tools.
    fn expand(&mut self, path: &Path, on_error: OnError) -> Result<Vec<Found>> {
        let status = path.metadata().map_err(|source| Error::list(path, source))?;
        if !status.is_dir() {
            return Ok(vec![Found::new(path.to_path_buf(), None)]);
        }
        let Walk { entries, skipped, left_out } =
            walk(path, &Rules { extensions: &EXTENSIONS, hidden: b"._", on_error })?;
        self.skipped.extend(skipped);
        for (ending, count) in left_out {
            *self.left_out.entry(ending).or_default() += count;
        }
        let files = entries.into_iter().filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path);
        let mut files: Vec<PathBuf> = files.collect();
        files.sort();
        Ok(files.into_iter().map(|file| Found::new(file, Some(path))).collect())
    }

    fn add(&mut self, Found { path, name }: Found, on_error: OnError) -> Result<()> {
        let absolute = path.canonicalize().map_err(|source| Error::list(&path, source))?;
        let status = absolute.metadata().map_err(|source| Error::list(&path, source))?;
        let stamp = Stamp::of(&status);
        self.identities.push((absolute.clone(), stamp));
        let footer = File::open(&path).map_err(|error| error.to_string()).and_then(|file| read_footer(&file));
        match footer {
            Ok(footer) => {
                let like = self.files.last().map(|file| &file.schema);
                let identity = Identity { path, name, absolute, stamp };
                self.files.push(ParquetFile::new(identity, &footer, like));
            }
            Err(reason) if on_error == OnError::Skip => self.skipped.push(Skipped::file(&path, reason)),
            Err(reason) => return Err(Error::Unreadable { path, reason }),
        }
        Ok(())
    }

    /// Adds what identifies the sources to a digest: paths, lengths and modification times.
    pub fn add_to(&self, digest: &mut DigestBuilder) {
        for (path, stamp) in &self.identities {
            digest.update(path.as_os_str().as_encoded_bytes());
            stamp.add_to(digest);
        }
    }
}

/// A file that was found at or below a given path.
struct Found {
    path: PathBuf,
    /// The path below the folder that the user named, or the file's name if the user named the file itself.
    name: String,
}

impl Found {
    fn new(path: PathBuf, root: Option<&Path>) -> Self {
        let below = root.and_then(|root| path.strip_prefix(root).ok()).map(Path::to_path_buf);
        let name = below.unwrap_or_else(|| path.file_name().map_or_else(|| path.clone(), PathBuf::from));
        Self { name: name.to_string_lossy().into_owned(), path }
    }
}
