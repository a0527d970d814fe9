//! A folder in memory, for tests.

use std::io;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use bytes::Bytes;

use crate::{BadRow, FileBytes, FileFormat, Folder, FolderFile, FormatOptions, Result, RowFiles};

/// Files that are in memory.
#[derive(Debug)]
pub(crate) struct MemoryFolder {
    files: Vec<FolderFile>,
    contents: Vec<Bytes>,
}

impl MemoryFolder {
    /// Makes a folder of names and contents.
    pub fn new<N: Into<String>>(files: impl IntoIterator<Item = (N, Vec<u8>)>) -> Arc<Self> {
        let mut files: Vec<(String, Vec<u8>)> = files.into_iter().map(|(name, bytes)| (name.into(), bytes)).collect();
        files.sort();
        let listed = files.iter().map(|(name, bytes)| FolderFile { name: name.clone(), bytes: bytes.len() as u64 });
        Arc::new(Self {
            files: listed.collect(),
            contents: files.into_iter().map(|(_, bytes)| Bytes::from(bytes)).collect(),
        })
    }
}

impl Folder for MemoryFolder {
    fn files(&self) -> &[FolderFile] {
        &self.files
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn FileBytes>> {
        let index = self.files.iter().position(|file| file.name == name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(self.contents[index].clone()))
    }
}

/// The rows of a file, until its end or its damage.
pub(crate) struct AllRows {
    pub batch: RecordBatch,
    pub bad: Vec<BadRow>,
    pub source_bytes: u64,
    pub num_batches: usize,
    pub damage: Option<String>,
}

/// Reads a file in batches of about `bytes_max` bytes.
pub(crate) fn read_all(files: &dyn RowFiles, file: usize, bytes_max: usize) -> AllRows {
    let (mut batches, mut bad, mut source_bytes) = (Vec::new(), Vec::new(), 0);
    let damage = match files.read(file) {
        Err(error) => Some(error.to_string()),
        Ok(mut reader) => loop {
            match reader.next(bytes_max) {
                Ok(Some(rows)) => {
                    batches.push(rows.batch);
                    bad.extend(rows.bad);
                    source_bytes += rows.source_bytes;
                }
                Ok(None) => break None,
                Err(error) => {
                    assert!(reader.next(bytes_max).unwrap().is_none(), "nothing follows damage");
                    break Some(error.to_string());
                }
            }
        },
    };
    let batch = concat_batches(&files.schema(), &batches).unwrap();
    AllRows { batch, bad, source_bytes, num_batches: batches.len(), damage }
}

/// Recognises and plans a folder.
pub(crate) fn plan(
    format: &dyn FileFormat,
    folder: &Arc<MemoryFolder>,
    options: &FormatOptions,
) -> Result<Box<dyn RowFiles>> {
    let files = format.recognise(&**folder).expect("files of the format");
    format.plan(folder.clone(), files, options)
}
