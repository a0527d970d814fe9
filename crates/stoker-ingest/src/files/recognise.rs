//! Looks what kind of sources there are.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use stoker_formats::{FORMATS, FileFormat, Folder, FolderFile};
use stoker_lake::StorageOptions;

use super::folder::StampedFolder;
use super::plan::{Formats, named, recognise, seen, unnamed};
use super::sources::list;
use crate::imagefolder::IMAGE_ENDINGS;
use crate::job::blocking;
use crate::parquet_files::PARQUET_ENDINGS;
use crate::place::shown;
use crate::{Error, OnError, Result};

/// Formats that have a file of their own which names the others. They come before Parquet files and class folders.
const WITH_INDEX: [&str; 2] = ["mds", "huggingface"];
/// Formats of folders in which each file is a row. They come last.
const OF_FOLDERS: [&str; 2] = ["audiofolder", "videofolder"];
/// Endings of files that have the labels of images. Folders with such files are no class folders.
const TABLE_ENDINGS: [&str; 4] = ["csv", "tsv", "jsonl", "ndjson"];

const IMAGEFOLDER: &str = "imagefolder";
const PARQUET: &str = "parquet";

/// A kind of source, and so the function that ingests it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// A folder of images, for [`crate::ingest_imagefolder`].
    Imagefolder,
    /// Parquet files, for [`crate::ingest_parquet`].
    Parquet,
    /// Files of the format with this name, for [`crate::ingest_files`].
    Format(&'static str),
}

/// What sources are, and how much there is of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecognisedSources {
    /// The kind of the sources.
    pub kind: SourceKind,
    /// The number of files that have rows.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
}

impl SourceKind {
    /// Returns the names of all kinds, as `--as` has them.
    pub fn names() -> Vec<&'static str> {
        kinds(&FORMATS)
    }
}

impl fmt::Display for SourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            SourceKind::Imagefolder => IMAGEFOLDER,
            SourceKind::Parquet => PARQUET,
            SourceKind::Format(name) => name,
        })
    }
}

/// Looks at the names of the files of sources, and at the contents of some, to find their kind. `name` is a name of
/// [`SourceKind::names`] that decides the kind, so that only its files are counted.
///
/// The first that fits is the kind: formats with an index; Parquet, if there is a Parquet file; an image folder, if there
/// is one folder with images in at least two folders, which are at least half of all files, and no table (CSV, JSON Lines)
/// of labels; other formats; an image folder with one class; folders of sounds or videos. The format that makes a row of
/// each file of any kind must be named. Standard input, `-`, is a stream of Arrow IPC. `options` are those of the object store
/// of sources in a bucket.
///
/// # Errors
/// [`Error::Empty`], which says what was seen, if no kind fits; [`Error::InvalidOption`] for an unknown name; errors of
/// listing the sources.
pub async fn recognise_sources(
    sources: &[PathBuf],
    name: Option<&str>,
    options: &StorageOptions,
) -> Result<RecognisedSources> {
    recognise_with(sources, name, options, &FORMATS).await
}

/// Finds the kind of sources among image folders, Parquet files and the given formats.
pub(crate) async fn recognise_with(
    sources: &[PathBuf],
    name: Option<&str>,
    options: &StorageOptions,
    formats: Formats,
) -> Result<RecognisedSources> {
    let (sources, name, options) = (sources.to_vec(), name.map(str::to_string), options.clone());
    blocking("looking at files", move || {
        // The ingest refuses links to nothing, if they are of its kind.
        let folder = list(&sources, OnError::Skip, &options)?.folder;
        let one_folder = folder.is_one_folder();
        let found = match name.as_deref() {
            None => find(&folder, one_folder, formats),
            Some(IMAGEFOLDER) => of_endings(&folder, &IMAGE_ENDINGS).map(|files| (SourceKind::Imagefolder, files)),
            Some(PARQUET) => of_endings(&folder, &PARQUET_ENDINGS).map(|files| (SourceKind::Parquet, files)),
            Some(name) if kinds(formats).contains(&name) => of_formats(&folder, &[named(formats, name)?]),
            Some(name) => {
                let reason = format!("there is no kind {name}; kinds: {}", kinds(formats).join(", "));
                return Err(Error::option("--as", reason));
            }
        };
        let Some((kind, files)) = found else {
            let seen = seen(&folder.endings());
            let reason = match &name {
                Some(name) => format!("no file is of the kind {name}; seen: {seen}"),
                None => format!("no kind is recognised; seen: {seen}; kinds for --as: {}", kinds(formats).join(", ")),
            };
            let path = sources.first().map(|source| shown(source)).unwrap_or_default();
            return Err(Error::Empty { path, reason });
        };
        let bytes = files.iter().map(|file| file.bytes).sum();
        Ok(RecognisedSources { kind, files: files.len() as u64, bytes })
    })
    .await
}

type Found<'a> = Option<(SourceKind, Vec<&'a FolderFile>)>;

fn find(folder: &StampedFolder, one_folder: bool, formats: Formats) -> Found<'_> {
    let only = |is_wanted: &dyn Fn(&str) -> bool| -> Vec<&'static dyn FileFormat> {
        unnamed(formats).into_iter().filter(|format| is_wanted(format.name())).collect()
    };
    let images = |num_folders_min: usize| {
        let images = of_endings(folder, &IMAGE_ENDINGS).filter(|_| one_folder)?;
        let parents: Option<BTreeSet<&str>> = images.iter().map(|file| Some(file.name.rsplit_once('/')?.0)).collect();
        let has_tables = of_endings(folder, &TABLE_ENDINGS).is_some();
        let are_classes = parents?.len() >= num_folders_min && 2 * images.len() >= folder.files().len();
        (are_classes && !has_tables).then_some((SourceKind::Imagefolder, images))
    };
    let in_between = |name: &str| !WITH_INDEX.contains(&name) && !OF_FOLDERS.contains(&name);
    of_formats(folder, &only(&|name| WITH_INDEX.contains(&name)))
        .or_else(|| of_endings(folder, &PARQUET_ENDINGS).map(|files| (SourceKind::Parquet, files)))
        .or_else(|| images(2))
        .or_else(|| of_formats(folder, &only(&in_between)))
        .or_else(|| images(1))
        .or_else(|| of_formats(folder, &only(&|name| OF_FOLDERS.contains(&name))))
}

/// Returns the files of the first format that recognises the folder.
fn of_formats<'a>(folder: &'a StampedFolder, formats: &[&'static dyn FileFormat]) -> Found<'a> {
    let (format, names) = recognise(folder, formats)?;
    let files = names.iter().filter_map(|name| folder.file(name)).collect();
    Some((SourceKind::Format(format.name()), files))
}

/// Returns the files with some endings, if there are any.
fn of_endings<'a>(folder: &'a StampedFolder, endings: &[&str]) -> Option<Vec<&'a FolderFile>> {
    let has_ending = |file: &&FolderFile| {
        let ending = Path::new(&file.name).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        endings.iter().any(|known| known.eq_ignore_ascii_case(ending))
    };
    let files: Vec<&FolderFile> = folder.files().iter().filter(has_ending).collect();
    (!files.is_empty()).then_some(files)
}

fn kinds(formats: Formats) -> Vec<&'static str> {
    [IMAGEFOLDER, PARQUET].into_iter().chain(formats.iter().map(|format| format.name())).collect()
}
