//! Lists the files of a folder and of its subfolders.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::{DirEntry, WalkDir};

use crate::place::{NamedSource, SourceContents, SourcePlace, walk_objects};
use crate::stamp::Stamp;
use crate::{Error, OnError, Result, Skipped};

/// What the counts of left-out files call folders that are Stoker lakes, each of which counts once.
pub const LAKES_LEFT_OUT: &str = "Stoker lakes";

/// The folder by which a lake is known: it has all that Stoker keeps beside the tables.
pub(crate) const LAKE_FOLDER: &str = "_stoker";

/// The rules by which files are selected.
pub(crate) struct Rules<'a> {
    /// The wanted endings of file names, without the dot; upper and lower case are equal. Empty means all files.
    pub extensions: &'a [&'a str],
    /// Files and folders whose names begin with one of these bytes belong to other tools and are ignored.
    pub hidden: &'a [u8],
    /// The handling of links to nothing.
    pub on_error: OnError,
}

/// The result of a walk.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    /// Folders and wanted files, in no particular order. Links are followed.
    pub entries: Vec<Entry>,
    /// Links to nothing, if these are skipped.
    pub skipped: Vec<Skipped>,
    /// The number of files with each other ending, and of lakes under [`LAKES_LEFT_OUT`].
    pub left_out: BTreeMap<String, u64>,
}

/// A folder or a file.
#[derive(Debug)]
pub(crate) struct Entry {
    pub path: PathBuf,
    pub is_folder: bool,
    /// The stamp of a file; the default for a folder.
    pub stamp: Stamp,
}

/// Lists everything below a folder, at `root`, except lakes, which have tables and no sources. A file has nothing below it.
///
/// # Errors
/// [`Error::List`] for a folder that cannot be read; [`Error::Unreadable`] for a link to nothing, unless such links are
/// skipped.
pub(crate) fn walk(place: &SourcePlace, root: &Path, source: &NamedSource, rules: &Rules<'_>) -> Result<Walk> {
    match (&source.contents, place) {
        (SourceContents::File(_), _) => Ok(Walk::default()),
        (SourceContents::Objects(objects), SourcePlace::Bucket(bucket)) => {
            let uri = source.path.to_string_lossy();
            Ok(walk_objects(root, bucket.key(&uri).unwrap_or_default(), objects, rules))
        }
        _ => walk_folder(root, rules),
    }
}

fn walk_folder(root: &Path, rules: &Rules<'_>) -> Result<Walk> {
    let mut num_lakes = 0u64;
    let visible = |entry: &DirEntry| {
        let first = entry.file_name().as_encoded_bytes().first();
        let is_hidden = first.is_some_and(|letter| rules.hidden.contains(letter));
        let is_lake = !is_hidden && entry.depth() > 0 && is_lake(entry);
        num_lakes += u64::from(is_lake);
        entry.depth() == 0 || !is_hidden && !is_lake
    };
    let mut found = Walk::default();
    for entry in WalkDir::new(root).min_depth(1).follow_links(true).into_iter().filter_entry(visible) {
        match entry {
            Ok(entry)
                if entry.file_type().is_dir() || is_wanted(entry.path(), rules) && entry.file_type().is_file() =>
            {
                found.entries.push(Entry::of(entry)?);
            }
            Ok(entry) => found.leave_out(entry.path()),
            Err(error) => found.add_failed(root, rules, error)?,
        }
    }
    if num_lakes > 0 {
        found.left_out.insert(LAKES_LEFT_OUT.into(), num_lakes);
    }
    found.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Whether an entry is the folder of a Stoker lake.
fn is_lake(entry: &DirEntry) -> bool {
    entry.file_type().is_dir() && entry.path().join(LAKE_FOLDER).is_dir()
}

impl Entry {
    fn of(entry: DirEntry) -> Result<Self> {
        let is_folder = entry.file_type().is_dir();
        let status = || {
            let status = entry.metadata();
            status.map_err(|source| Error::List { path: entry.path().to_path_buf(), source: source.into() })
        };
        let stamp = if is_folder { Stamp::default() } else { Stamp::of(&status()?) };
        Ok(Self { path: entry.into_path(), is_folder, stamp })
    }
}

impl Walk {
    fn leave_out(&mut self, path: &Path) {
        *self.left_out.entry(ending(path)).or_default() += 1;
    }

    /// Treats a link to nothing or in a circle as an unreadable file. Everything else that cannot be listed is an
    /// error.
    fn add_failed(&mut self, root: &Path, rules: &Rules<'_>, error: walkdir::Error) -> Result<()> {
        let path = error.path().unwrap_or(root).to_path_buf();
        let is_dangling = error.io_error().is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
            && path.symlink_metadata().is_ok_and(|status| status.is_symlink());
        let reason = match error.loop_ancestor() {
            Some(ancestor) => format!("it is a symbolic link to {}, the folder that contains it", ancestor.display()),
            None if is_dangling => "it is a link to something that does not exist".to_string(),
            None => return Err(Error::List { path, source: error.into() }),
        };
        if path.extension().is_some() && !is_wanted(&path, rules) {
            self.leave_out(&path);
            return Ok(());
        }
        match rules.on_error {
            OnError::Skip => self.skipped.push(Skipped::file(&path, reason)),
            OnError::Fail => return Err(Error::Unreadable { path, reason }),
        }
        Ok(())
    }
}

/// Returns the ending of a file's name in lower case, such as `.txt`, or `without ending`.
pub(crate) fn ending(path: &Path) -> String {
    let ending = path.extension().map(|extension| format!(".{}", extension.to_string_lossy().to_lowercase()));
    ending.unwrap_or_else(|| "without ending".into())
}

/// Whether the ending of a file's name is wanted.
pub(crate) fn is_wanted(path: &Path, rules: &Rules<'_>) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    rules.extensions.is_empty() || rules.extensions.iter().any(|known| known.eq_ignore_ascii_case(extension))
}
