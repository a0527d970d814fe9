//! Entries of the cache: files that contain one chunk each.
//!
//! ```text
//! <folder>/<2 digits of the key>/<62 digits>
//!     magic (8) │ key (32) │ length (8) │ XXH3 of the chunk (8) │ the chunk
//! ```

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{self, IoSliceMut, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use stoker_batch::{BufferPool, Pooled};
use stoker_checksum::hash;
use stoker_lake::RangeReader;
use stoker_types::{Digest, DigestBuilder};
use tempfile::{Builder, NamedTempFile};

use crate::local::{ReadFrom, read_all};

/// The number of bytes before the chunk.
pub(crate) const HEADER_BYTES: usize = 56;

/// The prefix of files that will be renamed to entries, or that killed processes left.
pub(crate) const PARTIAL: &str = "writing-";

/// The precision with which a process records the uses of an entry after its first one, so that not every use changes
/// the file's time.
const USE_NOTED: Duration = Duration::from_secs(60);

const MAGIC: [u8; 8] = *b"stoker\x00\x01";

/// Identifies a chunk: a range of an immutable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChunkKey(Digest);

impl ChunkKey {
    /// Computes the key of a range. Data files never change and no two have the same name, so a key always means the
    /// same bytes.
    pub fn new(file: &RangeReader, offset: u64, length: u64) -> Self {
        let key = DigestBuilder::new("stoker chunk 1").part(file.lake().as_bytes()).part(file.path().as_bytes());
        Self(key.part(&offset.to_le_bytes()).part(&length.to_le_bytes()).finish())
    }

    /// Parses the key from the name of an entry's file and of its folder, `parent`; returns `None` for other files.
    pub fn of_file(parent: &str, name: &str) -> Option<Self> {
        format!("{parent}{name}").parse().ok().map(Self)
    }

    /// Returns the path of the chunk's entry.
    pub fn path_in(&self, folder: &Path) -> PathBuf {
        let digits = self.0.to_string();
        let (parent, name) = digits.split_at(2);
        folder.join(parent).join(name)
    }

    fn header(&self, chunk: &[u8]) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..40].copy_from_slice(self.0.as_bytes());
        header[40..48].copy_from_slice(&(chunk.len() as u64).to_le_bytes());
        header[48..].copy_from_slice(&hash(chunk).to_le_bytes());
        header
    }
}

/// The content of an entry's file.
pub(super) enum Found {
    /// The expected chunk.
    Chunk(Pooled),
    /// Anything else.
    Damaged,
}

/// Reads the entry of a chunk of `length` bytes and records its use. `opened` is when this process opened the folder.
pub(super) fn read_entry(
    path: &Path,
    key: &ChunkKey,
    length: usize,
    pool: &BufferPool,
    opened: SystemTime,
) -> io::Result<Found> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() != (HEADER_BYTES + length) as u64 {
        return Ok(Found::Damaged);
    }
    let mut header = [0; HEADER_BYTES];
    let mut memory = pool.take(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
    match read_all(&file, &mut [IoSliceMut::new(&mut header), IoSliceMut::new(memory.as_mut())], 0, ReadFrom::Anywhere)
    {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Found::Damaged),
        Err(error) => return Err(error),
    }
    if header != key.header(memory.as_ref()) {
        return Ok(Found::Damaged);
    }
    note_use(&file, &metadata, opened);
    Ok(Found::Chunk(memory))
}

fn note_use(file: &File, metadata: &Metadata, opened: SystemTime) {
    let now = SystemTime::now();
    let is_old = |noted: SystemTime| noted < opened || now.duration_since(noted).is_ok_and(|since| since >= USE_NOTED);
    if metadata.modified().is_ok_and(is_old) {
        // Only the file's owner may set its time; other processes can still read the entry.
        file.set_modified(now).ok();
    }
}

/// Writes the entry of a chunk to a temporary file in the entry's folder. Persisting the file renames it to `path`;
/// dropping it removes it.
pub(crate) fn write_entry(path: &Path, key: &ChunkKey, chunk: &[u8]) -> io::Result<NamedTempFile> {
    let folder = path.parent().unwrap_or(path);
    // The mode is that of any new file; the folder's mode decides who may access it.
    let create = || Builder::new().prefix(PARTIAL).permissions(Permissions::from_mode(0o666)).tempfile_in(folder);
    let mut file = match create() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_folder(folder)?;
            create()?
        }
        created => created?,
    };
    file.write_all(&key.header(chunk))?;
    file.write_all(chunk)?;
    Ok(file)
}

/// Creates a folder that only its owner may enter, unless it exists.
pub(super) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}
