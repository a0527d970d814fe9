//! Folders in memory, and what tests ask of formats.

use std::io;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow_array::RecordBatch;
use bytes::Bytes;

use crate::{BadRow, FileBytes, FileFormat, Folder, FolderFile, FormatOptions, Result, RowFiles};

/// The size of batches that tests read, unless they try several.
pub(crate) const BYTES_MAX: usize = 1 << 20;

/// A folder in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryFolder {
    files: Vec<FolderFile>,
    contents: Vec<Bytes>,
}

impl MemoryFolder {
    pub fn new<T: Into<Vec<u8>>>(files: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let mut files: Vec<(&str, Bytes)> =
            files.into_iter().map(|(name, bytes)| (name, Bytes::from(bytes.into()))).collect();
        files.sort_by_key(|(name, _)| *name);
        let listed = files.iter().map(|(name, bytes)| FolderFile { name: (*name).into(), bytes: bytes.len() as u64 });
        Self { files: listed.collect(), contents: files.into_iter().map(|(_, bytes)| bytes).collect() }
    }
}

impl Folder for MemoryFolder {
    fn files(&self) -> &[FolderFile] {
        &self.files
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        let index = self.files.binary_search_by(|file| file.name.as_str().cmp(name));
        let index = index.map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(Arc::new(self.contents[index].clone()))
    }
}

/// What was read of files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadFiles {
    pub rows: RecordBatch,
    pub bad: Vec<BadRow>,
    pub source_bytes: u64,
    pub num_batches: usize,
}

impl ReadFiles {
    /// The reasons of bad rows, with their numbers.
    pub fn reasons(&self) -> Vec<String> {
        self.bad.iter().map(|bad| format!("{}: {}", bad.row, bad.reason)).collect()
    }
}

/// Plans the files that a format recognises.
pub(crate) fn plan(
    format: &dyn FileFormat,
    folder: &MemoryFolder,
    options: &FormatOptions,
) -> Result<Box<dyn RowFiles>> {
    let files = format.recognise(folder).expect("the format recognises the folder");
    format.plan(Arc::new(folder.clone()), files, options)
}

/// Reads all rows of planned files.
pub(crate) fn read_files(files: &dyn RowFiles, bytes_max: usize) -> Result<ReadFiles> {
    let (mut batches, mut bad, mut source_bytes) = (Vec::new(), Vec::new(), 0);
    for file in 0..files.files().len() {
        let mut reader = files.read(file)?;
        let mut next_row = 0;
        while let Some(read) = reader.next(bytes_max)? {
            assert_eq!(read.batch.schema(), files.schema());
            assert!(read.batch.num_rows() + read.bad.len() > 0, "a batch has rows or bad rows");
            let end = next_row + (read.batch.num_rows() + read.bad.len()) as u64;
            assert!(read.bad.iter().all(|bad| (next_row..end).contains(&bad.row)), "{:?} {next_row}", read.bad);
            next_row = end;
            batches.push(read.batch);
            bad.extend(read.bad);
            source_bytes += read.source_bytes;
        }
    }
    let rows = concat_batches(&files.schema(), &batches).unwrap();
    Ok(ReadFiles { rows, bad, source_bytes, num_batches: batches.len() })
}

/// Reads all rows that a format recognises, in batches of several sizes, which give the same.
pub(crate) fn read(format: &dyn FileFormat, folder: &MemoryFolder, options: &FormatOptions) -> Result<ReadFiles> {
    let files = plan(format, folder, options)?;
    let read = read_files(files.as_ref(), BYTES_MAX)?;
    let small = read_files(files.as_ref(), 1)?;
    assert_eq!((&small.rows, &small.bad), (&read.rows, &read.bad));
    Ok(read)
}

/// Reads all rows with the default options.
pub(crate) fn read_default(format: &dyn FileFormat, folder: &MemoryFolder) -> Result<ReadFiles> {
    read(format, folder, &FormatOptions::default())
}
