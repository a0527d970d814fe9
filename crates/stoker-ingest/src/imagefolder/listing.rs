//! Lists the images of a folder with their classes and splits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use stoker_buckets::FetchAhead;
use stoker_types::DigestBuilder;

use super::splits::FirstLevel;
use crate::place::{NamedSources, SourcePlace};
use crate::stamp::Stamp;
use crate::walk::{self, Rules, Walk, walk};
use crate::{Error, ImageFolderOptions, OnError, Result, Skipped};

/// The name of the split of all images in a folder without splits.
const NO_SPLIT: &str = "all";
/// Endings of the names of image files; upper and lower case are equal.
pub(crate) const EXTENSIONS: [&str; 4] = ["png", "jpg", "jpeg", "webp"];

/// An image file.
#[derive(Clone, Debug)]
pub(super) struct ImageFile {
    /// The path below the listed folder, with `/`.
    pub relative: String,
    /// The index of the class.
    pub class: usize,
    /// The index of the split.
    pub split: usize,
    /// The length, and the modification time or ETag, when the file was listed.
    pub stamp: Stamp,
}

/// The images of a folder.
#[derive(Debug)]
pub(super) struct Listing {
    /// The listed folder, as an absolute path or a URI.
    pub root: PathBuf,
    pub place: SourcePlace,
    /// The images, sorted by path.
    pub files: Vec<ImageFile>,
    /// The classes in the order of their labels.
    pub classes: Vec<String>,
    /// The splits, sorted.
    pub splits: Vec<String>,
    /// Skipped files, which cannot become rows whatever they contain.
    pub skipped: Vec<Skipped>,
    /// The number of files with each other ending.
    pub left_out: BTreeMap<String, u64>,
}

impl Listing {
    /// Lists a folder. Ignores hidden files and files with other endings; follows links.
    pub fn read(dir: &Path, options: &ImageFolderOptions) -> Result<Self> {
        let NamedSources { place, sources } = NamedSources::open(&[dir.to_path_buf()], &options.source_options)?;
        let source = sources.first().ok_or_else(|| Error::internal("listing images", "there is no source"))?;
        let dir = source.path.as_path();
        let root = match place.is_local() {
            true => dir.canonicalize().map_err(|error| Error::list(dir, error))?,
            false => dir.to_path_buf(),
        };
        let rules = Rules { extensions: &EXTENSIONS, hidden: b".", on_error: options.on_error };
        let Walk { entries, mut skipped, left_out } = walk(&place, &root, source, &rules)?;
        let entries = read_entries(&root, entries, options.on_error, &mut skipped)?;
        let folders = |level: usize| entries.iter().filter(move |entry| entry.folder && entry.parts() == level);
        let first_level = FirstLevel {
            folders: folders(1).map(|entry| &*entry.relative).collect(),
            images: entries.iter().filter(|entry| !entry.folder).map(|entry| &*entry.relative).collect(),
        };
        let splits = first_level.splits(dir, &options.splits)?;
        let has_splits = splits.is_some();
        let depth = if has_splits { 2 } else { 1 };

        let class = |entry: &Entry| {
            let (split, name) = entry.relative.rsplit_once('/').unwrap_or(("", &entry.relative));
            splits.as_ref().is_none_or(|splits| splits.contains(split)).then(|| name.to_string())
        };
        let classes: BTreeSet<String> = folders(depth).filter_map(class).collect();
        let classes = check_classes(&root, classes, options.classes.as_deref())?;
        let splits = splits.unwrap_or_else(|| BTreeSet::from([NO_SPLIT.to_string()]));
        let splits: Vec<String> = splits.into_iter().collect();

        let index = |names: &[String]| -> HashMap<String, usize> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), index)).collect()
        };
        let (class_index, split_index) = (index(&classes), index(&splits));
        let mut files = Vec::new();
        for entry in entries.into_iter().filter(|entry| !entry.folder) {
            let parts: Vec<&str> = entry.relative.split('/').collect();
            let (class, split) = match (parts.len() > depth, has_splits) {
                (true, true) => (class_index.get(parts[1]), split_index.get(parts[0])),
                (true, false) => (class_index.get(parts[0]), Some(&0)),
                (false, _) => (None, None),
            };
            let (Some(&class), Some(&split)) = (class, split) else {
                let layout = if has_splits { "SPLIT/CLASS/" } else { "CLASS/ or SPLIT/CLASS/" };
                let reason = format!("an image should be in {layout} below {}", dir.display());
                return Err(Error::Layout { path: root.join(&entry.relative), reason });
            };
            let Entry { relative, stamp, .. } = entry;
            files.push(ImageFile { relative, class, split, stamp });
        }
        if files.is_empty() {
            let reason = format!("found no {} files in class folders", EXTENSIONS.join(", "));
            return Err(Error::Empty { path: dir.to_path_buf(), reason });
        }
        files.sort_by(|a, b| a.relative.cmp(&b.relative));
        skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { root, place, files, classes, splits, skipped, left_out })
    }

    /// Returns the listing of some of the files, which are given by ascending index.
    pub fn only(&self, files: &[usize]) -> Self {
        let files = files.iter().map(|index| self.files[*index].clone()).collect();
        Self {
            root: self.root.clone(),
            place: self.place.clone(),
            files,
            classes: self.classes.clone(),
            splits: self.splits.clone(),
            skipped: Vec::new(),
            left_out: BTreeMap::new(),
        }
    }

    /// Returns the absolute path of a file.
    pub fn path(&self, file: &ImageFile) -> PathBuf {
        self.root.join(&file.relative)
    }

    /// Begins to fetch files that will be read soon, in this order, if they are in a bucket.
    pub fn fetch_ahead(&self, files: &[ImageFile]) -> Option<FetchAhead> {
        if self.place.is_local() {
            return None;
        }
        let paths: Vec<PathBuf> = files.iter().map(|file| self.path(file)).collect();
        self.place.fetch_ahead(paths.iter().map(PathBuf::as_path).zip(files.iter().map(|file| &file.stamp)))
    }

    /// Adds what identifies the sources to a digest: folder, classes, and the path, length and modification time or ETag of
    /// each file.
    pub fn add_to(&self, digest: &mut DigestBuilder) {
        digest.update(self.root.as_os_str().as_encoded_bytes());
        for class in &self.classes {
            digest.update(class.as_bytes());
        }
        for file in &self.files {
            digest.update(file.relative.as_bytes());
            file.stamp.add_to(digest);
        }
    }
}

/// A folder or an image file.
struct Entry {
    relative: String,
    folder: bool,
    /// The stamp of a file; the default for a folder.
    stamp: Stamp,
}

impl Entry {
    fn parts(&self) -> usize {
        self.relative.split('/').count()
    }
}

/// Converts the found entries: makes their paths relative to the listed folder.
fn read_entries(
    root: &Path,
    found: Vec<walk::Entry>,
    on_error: OnError,
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Entry>> {
    let mut entries = Vec::with_capacity(found.len());
    for walk::Entry { path, is_folder: folder, stamp } in found {
        let relative = path.strip_prefix(root).ok().and_then(Path::to_str);
        let Some(relative) = relative else {
            let reason = "its name is not UTF-8".to_string();
            match on_error {
                OnError::Skip if folder => continue,
                OnError::Skip => skipped.push(Skipped::file(&path, reason)),
                OnError::Fail => return Err(Error::Unreadable { path, reason }),
            }
            continue;
        };
        let relative = relative.replace(std::path::MAIN_SEPARATOR, "/");
        entries.push(Entry { relative, folder, stamp });
    }
    Ok(entries)
}

/// Returns the classes in the order of their labels: the given ones, which must name all folders, or else the folders,
/// sorted.
fn check_classes(root: &Path, folders: BTreeSet<String>, given: Option<&[String]>) -> Result<Vec<String>> {
    let Some(given) = given else { return Ok(folders.into_iter().collect()) };
    let known: BTreeSet<&str> = given.iter().map(String::as_str).collect();
    if known.len() != given.len() {
        return Err(Error::option("--classes", "a class is named twice"));
    }
    match folders.iter().find(|folder| !known.contains(folder.as_str())) {
        None => Ok(given.to_vec()),
        Some(folder) => {
            let reason = format!("the folder {folder} is not among the {} given classes", given.len());
            Err(Error::Layout { path: root.join(folder), reason })
        }
    }
}
