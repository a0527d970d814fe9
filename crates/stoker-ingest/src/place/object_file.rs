//! A file of a bucket, which remembers what made it unusable.

use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use stoker_buckets::BucketFile;
use stoker_formats::FileBytes;

use crate::stamp::StampError;

/// A file of a bucket. Readers turn errors into texts; the first error that is not about the bytes of the file is kept.
#[derive(Debug)]
pub(crate) struct ObjectFile {
    file: BucketFile,
    fault: Mutex<Option<Fault>>,
}

/// Why no byte of a file may be used.
#[derive(Clone, Debug)]
enum Fault {
    Changed(String),
    Unreachable(String),
}

impl ObjectFile {
    pub fn new(file: BucketFile) -> Self {
        Self { file, fault: Mutex::default() }
    }

    /// Returns the bytes of a range, which may be shared with other reads.
    ///
    /// # Errors
    /// As [`FileBytes::read_at`].
    pub fn read_range(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.noted(self.file.read_range(range))
    }

    /// Checks that all reads were answered, and that they were those of the listed file.
    pub fn check(&self) -> Result<(), StampError> {
        match self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone() {
            None => Ok(()),
            Some(Fault::Changed(change)) => Err(StampError::Changed(change)),
            Some(Fault::Unreachable(reason)) => Err(StampError::Unreachable(reason)),
        }
    }

    fn noted<T>(&self, read: io::Result<T>) -> io::Result<T> {
        let fault = match read.as_ref().err().and_then(stoker_buckets::Error::of_io) {
            Some(stoker_buckets::Error::Changed { change }) => Fault::Changed(change.clone()),
            Some(error) if error.is_transient() => Fault::Unreachable(error.to_string()),
            _ => return read,
        };
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
        read
    }
}

impl FileBytes for ObjectFile {
    fn size(&self) -> u64 {
        self.file.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.noted(self.file.read_at(offset, into))
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        self.file.will_read(ranges);
    }
}
