//! Finds the format of files, and plans the columns of the table.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use stoker_formats::{FileFormat, FilesAhead, Folder, RowFiles};
use stoker_types::DigestBuilder;

use super::columns::FileColumns;
use super::folder::StampedFolder;
use super::options::FilesOptions;
use super::sources::{SourceListing, list};
use crate::job::catch_panic;
use crate::place::shown;
use crate::source_file::SourceFile;
use crate::{Error, Result, Skipped};

/// Formats that an ingest may find.
pub(crate) type Formats = &'static [&'static dyn FileFormat];

/// Files of one format, and the columns of their rows.
#[derive(Debug)]
pub(super) struct FilePlan {
    pub format: &'static str,
    pub folder: Arc<StampedFolder>,
    pub rows: Box<dyn RowFiles>,
    /// The index in the folder of each file of `rows`.
    indices: Vec<usize>,
    pub columns: FileColumns,
    /// The columns of the table, without indexes of videos.
    pub schema: SchemaRef,
    pub skipped: Vec<Skipped>,
}

impl FilePlan {
    /// Lists the sources, and reads what their format needs to know of the columns.
    ///
    /// # Errors
    /// [`Error::Empty`] for sources in which no format is recognised; errors of the listing, of the format, and of
    /// options that do not fit the columns.
    pub fn new(sources: &[PathBuf], options: &FilesOptions, formats: Formats) -> Result<Self> {
        let SourceListing { folder, skipped } = list(sources, options.on_error, &options.source_options)?;
        let (format, names) = match &options.format {
            None => recognise(&folder, &unnamed(formats)),
            Some(name) => {
                let format = named(formats, name)?;
                recognise(&folder, &[format])
            }
        }
        .ok_or_else(|| unrecognised(sources, &folder, options.format.as_deref(), formats))?;
        let failed = |error| to_error(&folder, error);
        let plan = || {
            let folder: Arc<dyn Folder> = folder.clone();
            format.plan(folder, names, &options.to_format_options()).map_err(failed)
        };
        let rows = catch_panic(plan, |reason| Error::internal(format!("planning files of {}", format.name()), reason))?;
        let columns = FileColumns::plan(&rows.schema(), options)?;
        let unknown = |name: &String| Error::internal("planning files", format!("{name} is none of the listed files"));
        let index = |name: &String| folder.index(name).ok_or_else(|| unknown(name));
        let indices: Vec<usize> = rows.files().iter().map(index).collect::<Result<_>>()?;
        let schema = columns.schema();
        Ok(Self { format: format.name(), folder, rows, indices, columns, schema, skipped })
    }

    /// Returns the files that have rows, in the order of their rows.
    pub fn files(&self) -> Vec<SourceFile> {
        self.indices.iter().map(|index| self.folder.source_file(*index)).collect()
    }

    /// Returns the size in bytes of a file that has rows.
    pub fn file_bytes(&self, file: usize) -> u64 {
        self.folder.stamp(self.indices[file]).bytes
    }

    /// Returns the path of a file that has rows.
    pub fn path(&self, file: usize) -> PathBuf {
        self.rows.files().get(file).map_or_else(PathBuf::new, |name| self.folder.path(name))
    }

    /// Begins to fetch files that have rows and will be read soon, in this order, if they are in a bucket.
    pub fn fetch_ahead(&self, files: &[usize]) -> Option<FilesAhead> {
        let names = files.iter().filter_map(|file| self.rows.files().get(*file));
        let names: Vec<&str> = names.map(String::as_str).collect();
        (names.len() > 1).then(|| self.folder.fetch_ahead(&names)).flatten()
    }

    /// Counts the files of the folder that were not used, by ending.
    pub fn left_out(&self) -> BTreeMap<String, u64> {
        let has_rows: HashSet<usize> = self.indices.iter().copied().collect();
        self.folder.left_out(|index| has_rows.contains(&index))
    }

    /// Adds what identifies the sources to a digest: the format, and path, length and modification time (or ETag) of each
    /// file of the folder, because rows may refer to other files.
    pub fn add_to(&self, digest: &mut DigestBuilder) {
        digest.update(self.format.as_bytes());
        for (index, file) in self.folder.files().iter().enumerate() {
            digest.update(self.folder.path(&file.name).as_os_str().as_encoded_bytes());
            self.folder.stamp(index).add_to(digest);
        }
        for file in self.rows.files() {
            digest.update(file.as_bytes());
        }
    }

    /// Returns the error for what a format says. A file that changed is never another error.
    pub fn error(&self, error: stoker_formats::Error) -> Error {
        to_error(&self.folder, error)
    }
}

/// Returns the first format that recognises a folder, and its files that have rows.
pub(super) fn recognise(
    folder: &StampedFolder,
    formats: &[&'static dyn FileFormat],
) -> Option<(&'static dyn FileFormat, Vec<String>)> {
    formats.iter().find_map(|format| {
        // A panic of a format is a defect; the other formats may still recognise the files.
        let found = catch_panic(|| Ok::<_, String>(format.recognise(folder)), |reason| reason);
        let names = found.inspect_err(|error| tracing::error!(format = format.name(), %error, "cannot look at files"));
        names.ok().flatten().filter(|names| !names.is_empty()).map(|names| (*format, names))
    })
}

/// Returns the formats that are looked for when none is named.
pub(super) fn unnamed(formats: Formats) -> Vec<&'static dyn FileFormat> {
    formats.iter().copied().filter(|format| !format.is_named_only()).collect()
}

/// Returns the format with a name.
pub(super) fn named(formats: Formats, name: &str) -> Result<&'static dyn FileFormat> {
    let found = formats.iter().find(|format| format.name() == name);
    found.copied().ok_or_else(|| {
        let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
        Error::option("--as", format!("there is no format {name}; formats: {}", names.join(", ")))
    })
}

/// Returns the error for files that no format recognises: it says what was seen, and the names of the formats.
fn unrecognised(sources: &[PathBuf], folder: &StampedFolder, wanted: Option<&str>, formats: Formats) -> Error {
    let path = sources.first().map(|source| shown(source)).unwrap_or_default();
    let seen = seen(&folder.endings());
    let reason = match wanted {
        Some(name) => format!("no file is of the format {name}; seen: {seen}"),
        None => {
            let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
            format!("no format is recognised; seen: {seen}; give --as with one of {}", names.join(", "))
        }
    };
    Error::Empty { path, reason }
}

/// Says which files there are, the most frequent ending first.
pub(super) fn seen(endings: &BTreeMap<String, u64>) -> String {
    if endings.is_empty() {
        return "no files".into();
    }
    let mut counts: Vec<(&String, &u64)> = endings.iter().collect();
    counts.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let listed: Vec<String> = counts.iter().map(|(ending, count)| format!("{count} {ending}")).collect();
    listed.join(", ")
}

fn to_error(folder: &StampedFolder, error: stoker_formats::Error) -> Error {
    if let Some(fault) = folder.fault() {
        return fault;
    }
    let path = |file: &str| folder.path(file);
    match error {
        stoker_formats::Error::Read { file, source } => {
            Error::Unreadable { path: path(&file), reason: source.to_string() }
        }
        stoker_formats::Error::Malformed { file, reason } => Error::Unreadable { path: path(&file), reason },
        stoker_formats::Error::Column { file, column, reason } => Error::Column { path: path(&file), column, reason },
        stoker_formats::Error::InvalidOption { option, reason } => Error::InvalidOption { option, reason },
    }
}
