//! The files of an ingest's sources, which must not change while they are read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use stoker_formats::{FileBytes, FilesAhead, Folder, FolderFile, real_path_inside};

use crate::Error;
use crate::place::{ObjectFile, OpenFile, SourcePlace};
use crate::source_file::SourceFile;
use crate::stamp::{Stamp, StampError};
use crate::walk::ending;

/// The files of all sources. Their names are relative to the folder that contains the sources.
#[derive(Debug)]
pub(super) struct StampedFolder {
    place: SourcePlace,
    root: PathBuf,
    /// The files and folders that the user named.
    sources: Vec<PathBuf>,
    files: Vec<FolderFile>,
    /// What was listed about each file, in the order of `files`.
    listed: Vec<FileListing>,
    /// The number of lakes, and of what is neither a file nor a folder, as a walk counts them.
    unlisted: BTreeMap<String, u64>,
    faults: Arc<FirstFault>,
    /// The endings of the files that were opened.
    opened: Mutex<BTreeSet<String>>,
}

/// What was listed about a file.
#[derive(Clone, Debug)]
pub(super) struct FileListing {
    pub stamp: Stamp,
    /// The index of its source.
    pub source: usize,
    /// The length of the part of the file's name that names the folder of its source.
    pub source_length: usize,
}

/// The first file that changed after it was listed, or whose store did not answer.
#[derive(Debug, Default)]
struct FirstFault(Mutex<Option<(PathBuf, Fault)>>);

/// Why an ingest ends, whatever it does with files that cannot be read.
#[derive(Clone, Debug)]
enum Fault {
    /// The file changed. The text says what differs.
    Changed(String),
    /// The store of the file did not answer.
    Unreachable(String),
}

impl StampedFolder {
    /// Makes the folder of files that were listed below `root`, sorted by name. `unlisted` counts what was not.
    pub fn new(
        place: SourcePlace,
        root: PathBuf,
        sources: Vec<PathBuf>,
        files: Vec<(FolderFile, FileListing)>,
        unlisted: BTreeMap<String, u64>,
    ) -> Self {
        let (files, listed) = files.into_iter().unzip();
        Self { place, root, sources, files, listed, unlisted, faults: Arc::default(), opened: Mutex::default() }
    }

    /// Returns the index of a file.
    pub fn index(&self, name: &str) -> Option<usize> {
        self.files.binary_search_by(|file| file.name.as_str().cmp(name)).ok()
    }

    /// Returns the path at which a file is read.
    pub fn path(&self, name: &str) -> PathBuf {
        match &self.place {
            SourcePlace::Local | SourcePlace::Bucket(_) => self.root.join(name),
            SourcePlace::Input(_) => "standard input".into(),
        }
    }

    /// Returns the stamp of a file.
    pub fn stamp(&self, index: usize) -> &Stamp {
        &self.listed[index].stamp
    }

    /// Where the files are.
    pub fn place(&self) -> &SourcePlace {
        &self.place
    }

    /// Whether the sizes of files are known before they are read.
    pub fn knows_sizes(&self) -> bool {
        !matches!(self.place, SourcePlace::Input(_))
    }

    /// Whether the only source is a folder.
    pub fn is_one_folder(&self) -> bool {
        matches!(self.sources.as_slice(), [source] if *source == self.root)
    }

    /// Returns a file as a job knows it.
    pub fn source_file(&self, index: usize) -> SourceFile {
        let (name, listed) = (&self.files[index].name, &self.listed[index]);
        let path = self.path(name);
        let below = name.get(listed.source_length..).unwrap_or(name);
        let absolute = match &self.place {
            SourcePlace::Local | SourcePlace::Bucket(_) => path.to_string_lossy().into_owned(),
            SourcePlace::Input(input) => input.version.to_string(),
        };
        let (stamp, place) = (listed.stamp.clone(), self.place.clone());
        SourceFile { name: below.into(), path, absolute, stamp, place, parts: 1 }
    }

    /// Returns the error for the first file that changed, or whose store did not answer.
    pub fn fault(&self) -> Option<Error> {
        let fault = self.faults.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        fault.map(|(path, fault)| match fault {
            Fault::Changed(change) => Error::Changed { path, change },
            Fault::Unreachable(reason) => Error::Unreachable { path, reason },
        })
    }

    /// Counts the files that have no rows, by ending. Files whose ending one of the opened files has do not count: they
    /// are media to which rows refer, or belong to the format. Lakes are counted, too.
    pub fn left_out(&self, has_rows: impl Fn(usize) -> bool) -> BTreeMap<String, u64> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left_out = self.unlisted.clone();
        for (_, file) in self.files.iter().enumerate().filter(|(index, _)| !has_rows(*index)) {
            let ending = ending(Path::new(&file.name));
            if !opened.contains(&ending) {
                *left_out.entry(ending).or_default() += 1;
            }
        }
        left_out
    }

    /// Opens a file at its path, or at the real path if that path is a link.
    fn open_at(&self, index: usize, at: &Path) -> io::Result<Arc<dyn FileBytes>> {
        let name = &self.files[index].name;
        let (path, stamp) = (self.path(name), self.stamp(index));
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).insert(ending(Path::new(name)));
        if let SourcePlace::Input(input) = &self.place {
            return Ok(Arc::new(input.open()?));
        }
        let file = self.place.open(at, stamp).map_err(|error| self.faults.note(&path, error))?;
        let faults = self.faults.clone();
        Ok(match file {
            OpenFile::Local(file, stamp) => Arc::new(StampedFile { file, path, stamp, faults }),
            OpenFile::Object(file) => Arc::new(WatchedObject { file, path, faults }),
        })
    }

    /// Counts all files, by ending, and lakes.
    pub fn endings(&self) -> BTreeMap<String, u64> {
        let mut endings = self.unlisted.clone();
        for file in &self.files {
            *endings.entry(ending(Path::new(&file.name))).or_default() += 1;
        }
        endings
    }
}

impl Folder for StampedFolder {
    fn files(&self) -> &[FolderFile] {
        &self.files
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        let index = self.index(name).ok_or(io::ErrorKind::NotFound)?;
        self.open_at(index, &self.path(name))
    }

    fn open_inside(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        let index = self.index(name).ok_or(io::ErrorKind::NotFound)?;
        let path = self.path(name);
        if !self.place.is_local() {
            // Buckets have no links: a file of the folder is inside.
            return self.open_at(index, &path);
        }
        let source = self.sources.get(self.listed[index].source).unwrap_or(&self.root);
        match real_path_inside(source, &path) {
            Ok(real) => self.open_at(index, &real),
            // The file is gone, which is a change.
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.open_at(index, &path),
            Err(error) => Err(error),
        }
    }

    fn fetch_ahead(&self, names: &[&str]) -> Option<FilesAhead> {
        if self.place.is_local() {
            return None;
        }
        let indices = names.iter().filter_map(|name| self.index(name));
        let listed: Vec<(PathBuf, &Stamp)> =
            indices.map(|index| (self.path(&self.files[index].name), self.stamp(index))).collect();
        let ahead = self.place.fetch_ahead(listed.iter().map(|(path, stamp)| (path.as_path(), *stamp)))?;
        Some(Box::new(ahead))
    }
}

/// An open file, whose stamp is checked after each read.
#[derive(Debug)]
struct StampedFile {
    file: File,
    path: PathBuf,
    stamp: Stamp,
    faults: Arc<FirstFault>,
}

impl FileBytes for StampedFile {
    fn size(&self) -> u64 {
        self.stamp.bytes
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_exact_at(into, offset);
        // If the file changed, neither the bytes nor the error belong to the listed file.
        self.stamp.check(&self.file).map_err(|error| self.faults.note(&self.path, error))?;
        read
    }
}

/// An open file of a bucket, whose responses say whether it is the listed one.
#[derive(Debug)]
struct WatchedObject {
    file: Arc<ObjectFile>,
    path: PathBuf,
    faults: Arc<FirstFault>,
}

impl FileBytes for WatchedObject {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let read = self.file.read_at(offset, into);
        if read.is_err() {
            self.file.check().map_err(|error| self.faults.note(&self.path, error))?;
        }
        read
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        self.file.will_read(ranges);
    }
}

impl FirstFault {
    /// Keeps the fault of a file, unless another file had one before. Returns the error for the reader.
    fn note(&self, path: &Path, error: StampError) -> io::Error {
        let (fault, error) = match error {
            StampError::Io(error) => return error,
            StampError::Changed(change) => {
                let error = io::Error::other(format!("the file changed: {change}"));
                (Fault::Changed(change), error)
            }
            StampError::Unreachable(reason) => (Fault::Unreachable(reason.clone()), io::Error::other(reason)),
        };
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| (path.to_path_buf(), fault));
        error
    }
}
