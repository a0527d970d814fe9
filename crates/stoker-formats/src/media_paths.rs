//! Media files that rows name by their paths.

use std::sync::Arc;

use arrow_array::LargeBinaryArray;
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use stoker_files::{FilesAhead, path_inside};

use crate::{Folder, FolderFile};

/// The size up to which a file can be the value of a row.
const MEDIA_BYTES_MAX: u64 = 2 << 30;

/// The number of characters of a path that a message shows.
const PATH_CHARS_SHOWN: usize = 200;

/// The media files of a folder, as rows name them.
#[derive(Clone, Debug)]
pub(crate) struct MediaPaths(pub Arc<dyn Folder>);

impl MediaPaths {
    /// Finds the file with a path that `beside` names: a path from the folder in which `beside` is, or from the top of the
    /// dataset's folder.
    ///
    /// # Errors
    /// The reason, with the path: it is absolute, has `..`, or names no file of the folder, or a file that is too large.
    pub fn find(&self, beside: &str, path: &str) -> Result<&FolderFile, String> {
        let shown = || shown(path);
        let below = path_inside(path).map_err(|reason| format!("{} {reason}", shown()))?;
        let parent = beside.rsplit_once('/').map_or("", |(parent, _)| parent);
        let near = (!parent.is_empty()).then(|| self.0.file(&format!("{parent}/{below}"))).flatten();
        let Some(file) = near.or_else(|| self.0.file(&below)) else {
            return Err(format!("the folder has no file {}", shown()));
        };
        if file.bytes > MEDIA_BYTES_MAX {
            return Err(format!("{} has {} bytes; the limit is {MEDIA_BYTES_MAX}", shown(), file.bytes));
        }
        Ok(file)
    }

    /// Begins to fetch the files of rows, if they are far away. `files` has those of each column.
    pub fn fetch_ahead(&self, files: &[Vec<Option<FolderFile>>]) -> Option<FilesAhead> {
        let names: Vec<&str> = files.iter().flatten().flatten().map(|file| file.name.as_str()).collect();
        (names.len() > 1).then(|| self.0.fetch_ahead(&names)).flatten()
    }
}

fn shown(path: &str) -> String {
    let start: String = path.chars().take(PATH_CHARS_SHOWN).collect();
    let more = if start.len() < path.len() { "…" } else { "" };
    format!("\"{}{more}\"", start.escape_debug())
}

/// The bytes of media files, one after another: the values of a LargeBinary column.
#[derive(Debug)]
pub(crate) struct MediaValues {
    bytes: Vec<u8>,
    ends: Vec<i64>,
    valid: Vec<bool>,
}

impl MediaValues {
    pub fn new() -> Self {
        Self { bytes: Vec::new(), ends: vec![0], valid: Vec::new() }
    }

    /// Adds a value, or a null.
    pub fn push(&mut self, value: Option<&[u8]>) {
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.end(value.is_some());
    }

    /// Adds the bytes of a file. The row is null if the file cannot be read.
    ///
    /// # Errors
    /// The reason, with the path.
    pub fn push_file(&mut self, paths: &MediaPaths, file: &FolderFile) -> Result<(), String> {
        let start = self.bytes.len();
        let read = self.read(paths, file);
        if read.is_err() {
            self.bytes.truncate(start);
        }
        self.end(read.is_ok());
        read.map_err(|reason| format!("{}: {reason}", shown(&file.name)))
    }

    fn read(&mut self, paths: &MediaPaths, file: &FolderFile) -> Result<(), String> {
        let opened = paths.0.open_inside(&file.name).map_err(|error| error.to_string())?;
        let size = opened.size();
        if size != file.bytes {
            return Err(format!(
                "the file was changed: it has {size} bytes, and had {} when it was listed",
                file.bytes
            ));
        }
        let start = self.bytes.len();
        let size = usize::try_from(size).map_err(|_| "the file is too large")?;
        self.bytes.try_reserve(size).map_err(|error| format!("its {size} bytes do not fit memory: {error}"))?;
        self.bytes.resize(start + size, 0);
        let into = self.bytes.get_mut(start..).unwrap_or_default();
        opened.read_at(0, into).map_err(|error| error.to_string())
    }

    fn end(&mut self, is_valid: bool) {
        self.ends.push(i64::try_from(self.bytes.len()).unwrap_or(i64::MAX));
        self.valid.push(is_valid);
    }

    /// Returns the values.
    pub fn finish(self) -> LargeBinaryArray {
        let nulls = self.valid.contains(&false).then(|| NullBuffer::from(self.valid));
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.ends));
        LargeBinaryArray::new(offsets, Buffer::from_vec(self.bytes), nulls)
    }
}
