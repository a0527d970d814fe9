//! Finds Parquet files and reads their footers.

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

/// Endings of file names in folders that are Parquet files.
const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// What is kept of a file's footer.
#[derive(Clone)]
pub(super) struct ParquetFile {
    pub path: PathBuf,
    /// Its path below the folder that was given; of a file that was given its name.
    pub name: String,
    pub absolute: PathBuf,
    /// What the file was when it was listed.
    pub stamp: Stamp,
    /// Shared by files with equal schemas.
    pub schema: SchemaRef,
    pub row_groups: Vec<RowGroup>,
}

/// Which file it is.
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
    /// Bytes in the file.
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
    /// How many files of the folders have each other ending.
    pub left_out: BTreeMap<String, u64>,
    /// The absolute path of each, readable or not, and what it was.
    identities: Vec<(PathBuf, Stamp)>,
}

impl Sources {
    /// Reads the footers of files, and of the files in folders.
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

    /// The file itself, or the Parquet files in a folder. Names that begin with `.` or `_` are bookkeeping of other tools.
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

/// A path below the one that was given.
struct Found {
    path: PathBuf,
    /// Below the folder that was given; of a file that was given its name.
    name: String,
}

impl Found {
    fn new(path: PathBuf, root: Option<&Path>) -> Self {
        let below = root.and_then(|root| path.strip_prefix(root).ok()).map(Path::to_path_buf);
        let name = below.unwrap_or_else(|| path.file_name().map_or_else(|| path.clone(), PathBuf::from));
        Self { name: name.to_string_lossy().into_owned(), path }
    }
}
