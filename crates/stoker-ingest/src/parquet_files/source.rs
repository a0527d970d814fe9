//! Lists Parquet files and reads their footers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::RowGroupMetaData;
use stoker_types::DigestBuilder;

use super::footer::read_footer;
use crate::place::{NamedSource, NamedSources, SourceContents, SourcePlace};
use crate::stamp::{Stamp, StampError};
use crate::walk::{Rules, Walk, walk};
use crate::{Error, OnError, ParquetOptions, Result, Skipped};

/// The number of footers that are read at the same time from a bucket.
const FOOTERS_AT_ONCE: usize = 32;

/// Endings of the names of Parquet files in folders.
pub(crate) const EXTENSIONS: [&str; 3] = ["parquet", "parq", "pq"];

/// A Parquet file, with the parts of its footer that are kept.
#[derive(Clone)]
pub(super) struct ParquetFile {
    pub path: PathBuf,
    /// The path below the folder that the user named, or the file's name if the user named the file itself.
    pub name: String,
    pub absolute: PathBuf,
    /// The length, and the modification time or ETag, when the file was listed.
    pub stamp: Stamp,
    pub place: SourcePlace,
    /// The Arrow schema. Consecutive files with equal schemas share it.
    pub schema: SchemaRef,
    pub row_groups: Vec<RowGroup>,
}

/// The path, name, place and stamp of a file.
#[derive(Clone)]
struct Identity {
    path: PathBuf,
    /// The path below the folder that the user named, or the file's name if the user named the file itself.
    name: String,
    absolute: PathBuf,
    stamp: Stamp,
    place: SourcePlace,
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
        let Identity { path, name, absolute, stamp, place } = identity;
        Self { path, name, absolute, stamp, place, schema, row_groups: row_groups.collect() }
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
    pub fn open(paths: &[PathBuf], options: &ParquetOptions) -> Result<Self> {
        let on_error = options.on_error;
        let NamedSources { place, sources: named } = NamedSources::open(paths, &options.source_options)?;
        let (files, skipped, identities) = (Vec::new(), Vec::new(), Vec::new());
        let mut sources = Self { files, skipped, left_out: BTreeMap::new(), identities };
        for source in &named {
            let found = sources.expand(&place, source, on_error)?;
            let at_once = if place.is_local() { 1 } else { FOOTERS_AT_ONCE };
            for some in found.chunks(at_once) {
                for (identity, footer) in some.iter().zip(footers(some)) {
                    sources.add(identity.clone(), footer, on_error)?;
                }
            }
        }
        if sources.files.is_empty() {
            let path = named.first().map(|source| source.path.clone()).unwrap_or_default();
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
    fn expand(&mut self, place: &SourcePlace, source: &NamedSource, on_error: OnError) -> Result<Vec<Identity>> {
        let path = &source.path;
        if let SourceContents::File(stamp) = &source.contents {
            return Ok(vec![Identity::new(path.clone(), None, stamp.clone(), place)?]);
        }
        let rules = Rules { extensions: &EXTENSIONS, hidden: b"._", on_error };
        let Walk { entries, skipped, left_out } = walk(place, path, source, &rules)?;
        self.skipped.extend(skipped);
        for (ending, count) in left_out {
            *self.left_out.entry(ending).or_default() += count;
        }
        let mut files: Vec<_> = entries.into_iter().filter(|entry| !entry.is_folder).collect();
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files.into_iter().map(|file| Identity::new(file.path, Some(path), file.stamp, place)).collect()
    }

    fn add(
        &mut self,
        identity: Identity,
        footer: Result<ArrowReaderMetadata, StampError>,
        on_error: OnError,
    ) -> Result<()> {
        self.identities.push((identity.absolute.clone(), identity.stamp.clone()));
        let path = identity.path.clone();
        match footer {
            Ok(footer) => {
                let like = self.files.last().map(|file| &file.schema);
                self.files.push(ParquetFile::new(identity, &footer, like));
            }
            Err(StampError::Io(error)) if on_error == OnError::Skip => {
                self.skipped.push(Skipped::file(&path, error.to_string()));
            }
            Err(StampError::Io(error)) => return Err(Error::Unreadable { path, reason: error.to_string() }),
            Err(StampError::Changed(change)) => return Err(Error::Changed { path, change }),
            Err(StampError::Unreachable(reason)) => return Err(Error::Unreachable { path, reason }),
        }
        Ok(())
    }

    /// Adds what identifies the sources to a digest: paths, lengths, and modification times or ETags.
    pub fn add_to(&self, digest: &mut DigestBuilder) {
        for (path, stamp) in &self.identities {
            digest.update(path.as_os_str().as_encoded_bytes());
            stamp.add_to(digest);
        }
    }
}

impl Identity {
    /// `root` is the folder that the user named.
    fn new(path: PathBuf, root: Option<&Path>, stamp: Stamp, place: &SourcePlace) -> Result<Self> {
        let below = root.and_then(|root| path.strip_prefix(root).ok()).map(Path::to_path_buf);
        let name = below.unwrap_or_else(|| path.file_name().map_or_else(|| path.clone(), PathBuf::from));
        let absolute = match place.is_local() {
            true => path.canonicalize().map_err(|source| Error::list(&path, source))?,
            false => path.clone(),
        };
        Ok(Self { name: name.to_string_lossy().into_owned(), path, absolute, stamp, place: place.clone() })
    }

    fn footer(&self) -> Result<ArrowReaderMetadata, StampError> {
        let file = self.place.open(&self.path, &self.stamp)?;
        let footer = read_footer(&file).map_err(|reason| StampError::Io(io::Error::other(reason)));
        file.check().and(footer)
    }
}

/// Reads the footers of some files, each in a thread of its own if there are several.
fn footers(files: &[Identity]) -> Vec<Result<ArrowReaderMetadata, StampError>> {
    if let [file] = files {
        return vec![file.footer()];
    }
    let died = || Err(StampError::Io(io::Error::other("the thread that reads the footer ended early")));
    std::thread::scope(|scope| {
        let threads: Vec<_> = files.iter().map(|file| scope.spawn(|| file.footer())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| died())).collect()
    })
}
