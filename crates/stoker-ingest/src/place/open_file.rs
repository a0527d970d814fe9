//! A file that was listed and is open.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use stoker_formats::FileBytes;
use stoker_types::to_usize;

use super::ObjectFile;
use crate::stamp::{Stamp, StampError};

/// The bytes of a file of a bucket that are copied at once where single ones are read.
const BUFFER_BYTES: usize = 8 << 10;

/// A file that was listed and is open.
#[derive(Debug)]
pub(crate) enum OpenFile {
    /// A file of this machine, with its stamp.
    Local(File, Stamp),
    /// A file of a bucket.
    Object(Arc<ObjectFile>),
}

impl OpenFile {
    /// Checks that the file still is the listed one, so that the bytes which were read before are those of the listed file.
    pub fn check(&self) -> Result<(), StampError> {
        match self {
            OpenFile::Local(file, stamp) => stamp.check(file),
            OpenFile::Object(file) => file.check(),
        }
    }

    /// Reads all bytes that the file had when it was listed into memory that is taken for them.
    pub fn read_all(&self) -> Result<Vec<u8>, StampError> {
        let size = Length::len(self);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(to_usize(size)).map_err(|error| StampError::Io(io::Error::other(error)))?;
        match self {
            OpenFile::Local(file, stamp) => {
                Read::take(file, stamp.bytes).read_to_end(&mut bytes).map_err(StampError::Io)?;
            }
            OpenFile::Object(file) => {
                bytes.resize(to_usize(size), 0);
                file.read_at(0, &mut bytes).map_err(|error| file.check().err().unwrap_or(StampError::Io(error)))?;
            }
        }
        self.check()?;
        Ok(bytes)
    }

    /// Returns another handle of the open file.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            OpenFile::Local(file, stamp) => OpenFile::Local(file.try_clone()?, stamp.clone()),
            OpenFile::Object(file) => OpenFile::Object(file.clone()),
        })
    }

    /// Returns a reader of the file from its beginning.
    pub fn reader(&self) -> io::Result<FileRead> {
        match self {
            OpenFile::Local(file, _) => Ok(FileRead::Local(BufReader::new(file.try_clone()?))),
            OpenFile::Object(file) => {
                Ok(FileRead::Object(BufReader::with_capacity(BUFFER_BYTES, ObjectRead::new(file, 0))))
            }
        }
    }

    /// Says that ranges will be read, each from its beginning to its end.
    pub fn will_read(&self, ranges: &[Range<u64>]) {
        match self {
            OpenFile::Local(..) => {}
            OpenFile::Object(file) => file.will_read(ranges),
        }
    }
}

impl Length for OpenFile {
    fn len(&self) -> u64 {
        match self {
            // As Parquet reads a file of this machine: the length that it has now.
            OpenFile::Local(file, _) => file.len(),
            OpenFile::Object(file) => file.size(),
        }
    }
}

impl ChunkReader for OpenFile {
    type T = FileRead;

    fn get_read(&self, start: u64) -> ParquetResult<FileRead> {
        match self {
            OpenFile::Local(file, _) => file.get_read(start).map(FileRead::Local),
            OpenFile::Object(file) => {
                Ok(FileRead::Object(BufReader::with_capacity(BUFFER_BYTES, ObjectRead::new(file, start))))
            }
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            OpenFile::Local(file, _) => file.get_bytes(start, length),
            OpenFile::Object(file) => {
                let end = start.checked_add(length as u64).filter(|end| *end <= file.size());
                let end = end.ok_or_else(|| ParquetError::EOF(format!("{length} bytes from {start} on")))?;
                file.read_range(start..end).map_err(|error| ParquetError::General(error.to_string()))
            }
        }
    }
}

/// Reads a file from an offset on.
pub(crate) enum FileRead {
    Local(BufReader<File>),
    Object(BufReader<ObjectRead>),
}

impl Read for FileRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            FileRead::Local(file) => file.read(into),
            FileRead::Object(file) => file.read(into),
        }
    }
}

/// Reads a file of a bucket from an offset on.
pub(crate) struct ObjectRead {
    file: Arc<ObjectFile>,
    at: u64,
}

impl ObjectRead {
    fn new(file: &Arc<ObjectFile>, at: u64) -> Self {
        Self { file: file.clone(), at }
    }
}

impl Read for ObjectRead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = to_usize(self.file.size().saturating_sub(self.at)).min(into.len());
        let Some(into) = into.get_mut(..length) else { return Ok(0) };
        self.file.read_at(self.at, into)?;
        self.at += length as u64;
        Ok(length)
    }
}
